#pragma once

// Backends in shared objects, loaded when they are asked for, so that a worker without them stays
// small. They lie beside the binary that runs: BINARY/../../lib/runnel/librunnel_backend_NAME.so.
//
// Such an object exports one function,
//   extern "C" const runnel::BackendRow* runnel_backend_row(int contract);
// which returns null for a contract that it was not built for.

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "kernels/backends/backend.h"

namespace runnel {

// Both sides must be built from the same backend.h, backend_traits.h and program.h: raise it when either changes.
inline constexpr int kBackendContract = 7;

// Path of the backend's shared object; it need not be there.
std::string BackendLibrary(absl::string_view name);

// Whether the file is there. Loads nothing.
bool IsBackendInstalled(absl::string_view name);

// Loads the object, for good, and makes its backend. InvalidArgument, one line that names the path:
// it is not there, cannot be loaded, or was built for another release; else as BackendRow::make.
absl::StatusOr<std::unique_ptr<Backend>> LoadBackend(absl::string_view name,
                                                     const BackendSettings& settings);

}  // namespace runnel
