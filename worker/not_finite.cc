#include "worker/not_finite.h"

#include "absl/strings/cord.h"

namespace runnel {
namespace {

constexpr char kPayload[] = "runnel.not_finite";

}  // namespace

absl::Status MarkNotFinite(absl::Status status, NotFinite from) {
  status.SetPayload(kPayload, absl::Cord(std::string(1, static_cast<char>(from))));
  return status;
}

NotFinite NotFiniteOf(const absl::Status& status) {
  const absl::optional<absl::Cord> from = status.GetPayload(kPayload);
  return from.has_value() ? static_cast<NotFinite>((*from)[0]) : NotFinite::kNothing;
}

}  // namespace runnel
