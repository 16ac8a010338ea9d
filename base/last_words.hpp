// SPDX-License-Identifier: Apache-2.0
// What ends a program where an exception meets nobody who may catch it: in a destructor, a thread,
// the start of a library. Without this it is aborted, in the words of the C++ library.
#pragma once

namespace penstock {

/// From now on that is said, and the exit code is that of the error: 1 without memory, else 70.
/// `program` begins the sentence, and outlives the process.
void say_what_nobody_catches(const char* program);

/// First thing in main: what every program of ours needs of its process. Keeps the standard
/// streams, says what nobody catches, has writes beyond `ulimit -f` fail with a reason (EFBIG) in
/// place of ending the process, and ends it in words, exit code 1, where `ulimit -s` leaves too
/// small a stack.
void begin_program(const char* program);

/// That there is not enough memory; takes none itself.
void say_no_memory(const char* program) noexcept;

}  // namespace penstock
