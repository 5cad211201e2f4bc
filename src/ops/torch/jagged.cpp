#include "ops/torch/ops.h"
