// SPDX-License-Identifier: Apache-2.0
// What the address sanitizer is told where nobody says otherwise (ASAN_OPTIONS). Tests allocate and
// free a lot: with the usual 256 MiB of freed memory that is kept, given back to the system every
// five seconds, and 30 callers of each allocation they take half as long again. Only the sanitizer
// calls it, so it is linked as it is compiled into one file with what everything uses (unity).
// NOLINTNEXTLINE(bugprone-reserved-identifier): the sanitizer's name for it
extern "C" const char* __asan_default_options();
extern "C" const char* __asan_default_options() {
  return "quarantine_size_mb=16:malloc_context_size=8:allocator_release_to_os_interval_ms=-1";
}
