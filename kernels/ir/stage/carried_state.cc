#include "kernels/ir/stage/carried_state.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "proto/base/model/side_values.h"

namespace runnel {

absl::StatusOr<CarriedState> PlaceCarriedState(const ModelSpec& model, const NumberFormat& numbers,
                                               Program& program, std::vector<bool>& placed) {
  const auto add = [&](Storage storage, const SideValue& row, Direction direction,
                       const Shape& tensor) {
    for (const SidePlace& place : SidePlaces(numbers, tensor, direction)) {
      if (place.value->name != row.name) continue;
      program.buffers.push_back({storage, row.type, Shape({program.batch, kLstmState}),
                                 static_cast<int64_t>(place.memory_offset)});
      placed.push_back(true);
      return static_cast<BufferIndex>(program.buffers.size()) - 1;
    }
    return kNoBuffer;
  };
  const auto has_row = [&numbers](const SideValue& row) {
    return std::any_of(numbers.beside.begin(), numbers.beside.end(),
                       [&row](const SideValue& beside) { return beside.name == row.name; });
  };
  const bool crosses =
      StateEnters(model, program.first_layer) || StateEnters(model, program.last_layer + 1);
  if (crosses && !(has_row(kCarriedStates) && has_row(kCarriedGradients))) {
    return absl::InvalidArgumentError(
        absl::StrCat("model ", model.name,
                     ": a state crosses a cut, and the recipe has no row for it beside "
                     "boundary tensors"));
  }
  CarriedState state;
  if (StateEnters(model, program.first_layer)) {
    state.input = add(Storage::kInput, kCarriedStates, Direction::kForward, program.input);
    if (program.needs_input_gradient) {
      state.input_gradient =
          add(Storage::kInputGradient, kCarriedGradients, Direction::kBackward, program.input);
    }
  }
  if (StateEnters(model, program.last_layer + 1)) {
    state.output = add(Storage::kOutput, kCarriedStates, Direction::kForward, program.output);
    state.output_gradient =
        add(Storage::kOutputGradient, kCarriedGradients, Direction::kBackward, program.output);
  }
  return state;
}

}  // namespace runnel
