#pragma once

// Parts of the training that may change while it goes on, a row a dial. Journals, check-points,
// grants, replay and log lines carry a change as (step, dial, value); only a dial's own file knows
// the meaning of its values.

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace runnel {

struct Dial {
  absl::string_view name;   // in files and on the wire: letters, digits, "_"
  absl::string_view label;  // text for people: "gradient bits"
  // InvalidArgument names the fault of a value.
  absl::Status (*check)(absl::string_view value);
};

// The table.
absl::Span<const Dial> Dials();

// InvalidArgument lists the dials that there are.
absl::StatusOr<const Dial*> FindDial(absl::string_view name);

}  // namespace runnel
