#include "eventhandler.h"  // as yaml-cpp has it
