#include "kernels/backends/lost_backend.h"

#include "absl/strings/cord.h"

namespace runnel {
namespace {

constexpr char kPayload[] = "runnel.lost_backend";

}  // namespace

absl::Status MarkLostBackend(absl::Status status, absl::string_view backend) {
  status.SetPayload(kPayload, absl::Cord(backend));
  return status;
}

std::optional<std::string> LostBackendOf(const absl::Status& status) {
  const absl::optional<absl::Cord> backend = status.GetPayload(kPayload);
  if (!backend.has_value()) return std::nullopt;
  return std::string(*backend);
}

}  // namespace runnel
