#include "config/load.h"
