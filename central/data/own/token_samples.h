#pragma once

// Texts and arrays of tokens without labels, for a model that was trained on tokens.

#include <memory>

#include "absl/status/statusor.h"
#include "central/data/dataset.h"

namespace runnel::data {

// As DatasetRow::described, of descriptions with a vocabulary. A text file is one sample, its last
// tokens, as many as the model has positions; an array (.npy) has one a row, or one if it is a list.
// Models whose labels are tokens take shorter samples too: behind them lie tokens 0, and
// predicted_label is that of the last token.
absl::StatusOr<std::unique_ptr<Dataset>> DescribedTokens(const DataDescription& description);

}  // namespace runnel::data
