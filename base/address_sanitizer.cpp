// What the address sanitizer is told where nobody says otherwise (ASAN_OPTIONS). Tests allocate and
// free a lot: with the usual 256 MiB of freed memory that is kept and 30 callers of each allocation
// they take half as long again.
extern "C" const char* __asan_default_options();
extern "C" const char* __asan_default_options() {
  return "quarantine_size_mb=16:malloc_context_size=8:allocator_release_to_os_interval_ms=-1";
}
