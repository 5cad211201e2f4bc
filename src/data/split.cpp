#include "data/split.h"
