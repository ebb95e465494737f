// Before a function: the compiler vectorises it for each kind of processor, and the loader selects the version. For
// sources that are compiled with -O3.
#pragma once

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define PENSTOCK_FOR_EACH_PROCESSOR __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define PENSTOCK_FOR_EACH_PROCESSOR
#endif
