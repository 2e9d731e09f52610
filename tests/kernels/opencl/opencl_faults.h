#pragma once

// A device that is lost, full or wrong: OpenCL's own entry points, in front of the loader's.

#include <string>

namespace runnel {

// So many kernels are enqueued from now on, then each is CL_OUT_OF_RESOURCES; -1: none is. Before
// the first call: RUNNEL_TEST_OPENCL_KERNELS of the environment.
void LoseDeviceAfter(int kernels);

// So many kernels were enqueued until now.
int KernelsEnqueued();

// Kernels of programs whose build options have this text report `code` and do nothing; empty: none.
void SpoilBuilds(const std::string& option, int code);

// Programs whose build options have this text (empty: all) are not built from now on, but give this
// code; CL_SUCCESS: they are.
void RefuseBuilds(int code, const std::string& option = "");

// Devices say that they have this extension too; empty: none.
void ClaimExtension(const std::string& extension);

// Devices say that they run kernels of this name (empty: all) in groups of so many work-items at
// most; 0: they say the truth.
void LimitGroups(int items, const std::string& kernel = "");

// From now on clFinish never returns.
void HangOnFinish();

// Of SpoilBuilds: kernels that hang, which the next clFinish finds out.
inline constexpr int kKernelHangs = 1;

// So many buffers and images were made until now.
int BuffersMade();

// So many programs were made of their text until now.
int SourcesBuilt();

// Of the environment too: RUNNEL_TEST_OPENCL_BUFFERS, so many buffers are made, then there is no
// memory; RUNNEL_TEST_OPENCL_NOTHING, kernels do nothing and report success;
// RUNNEL_TEST_OPENCL_LANGUAGE, what devices say that they compile.

}  // namespace runnel
