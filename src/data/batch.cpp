#include "data/batch.h"
