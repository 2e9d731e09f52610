#pragma once

// The texts of kernels/backends/opencl/cl, which the build writes into a source file. Each program begins
// with the prelude.

namespace runnel::opencl {

extern const char* const kPreludeSource;
extern const char* const kElementsSource;
extern const char* const kCodesSource;
extern const char* const kFloatsSource;
extern const char* const kGridsSource;
extern const char* const kPoolsSource;
extern const char* const kStepSource;
extern const char* const kProductSource;
extern const char* const kDepthwiseSource;
extern const char* const kWinogradSource;

}  // namespace runnel::opencl
