#pragma once

// Recipes whose products are those of integer codes, for who does not compile programs: what
// kernels/ir/passes/integer_products.h makes of each family. Pure function; any thread.

#include <algorithm>
#include <iterator>

#include "absl/strings/string_view.h"

namespace runnel {

// family: RecipeFamily::name.
inline bool MultipliesCodes(absl::string_view family) {
  constexpr absl::string_view kFamilies[] = {"sbm", "sbm_range", "ui8", "octo", "octo_lac"};
  return std::find(std::begin(kFamilies), std::end(kFamilies), family) != std::end(kFamilies);
}

}  // namespace runnel
