#pragma once

// The page behind `/`.

#include "absl/strings/string_view.h"

namespace runnel {

// HTML with its script inside; it asks for /state every second and draws what is there.
absl::string_view AdminPage();

}  // namespace runnel
