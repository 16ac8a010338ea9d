// SPDX-License-Identifier: Apache-2.0
#include "eventhandler.h"  // as yaml-cpp has it
