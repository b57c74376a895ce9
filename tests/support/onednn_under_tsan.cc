// oneDNN is not built for the thread sanitizer, which therefore does not see that its cache of
// primitives is synchronized by atomics. Reports inside the library are suppressed. A program
// without a sanitizer never calls this function.
extern "C" const char* __tsan_default_suppressions();
extern "C" const char* __tsan_default_suppressions() { return "called_from_lib:libdnnl.so\n"; }
