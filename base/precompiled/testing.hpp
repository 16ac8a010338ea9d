// SPDX-License-Identifier: Apache-2.0
// The same for tests (meson.build beside this).
#include "base/precompiled/standard.hpp"

#include <gtest/gtest.h>
