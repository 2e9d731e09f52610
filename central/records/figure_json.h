#pragma once

// Figures of stages and links as JSON (shown_figures.h). For .cc files of central only.

#include <vector>

#include "proto/json/json_fields.h"
#include "central/records/shown_figures.h"

namespace runnel {

// Adds a key for each figure that has one; for the page only those that it shows.
void AddFigures(const std::vector<ShownFigure>& figures, bool for_page, Json& json);

}  // namespace runnel
