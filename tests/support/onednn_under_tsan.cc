// oneDNN is not built for the thread sanitizer, which so cannot see that what its cache of
// primitives hands from thread to thread is synchronised by atomics. What the library itself does
// is not looked at. The program without a sanitizer never calls this.
extern "C" const char* __tsan_default_suppressions();
extern "C" const char* __tsan_default_suppressions() { return "called_from_lib:libdnnl.so\n"; }
