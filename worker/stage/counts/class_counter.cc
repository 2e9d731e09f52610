#include "worker/stage/counts/class_counter.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "proto/base/tensor/dtype.h"
#include "proto/base/training/mixed_label.h"

namespace runnel {
namespace {

constexpr int64_t kFive = 5;

// Outputs that come before that of the label.
int64_t RankOf(absl::Span<const float> row, size_t label) {
  int64_t before = 0;
  for (size_t c = 0; c < row.size(); ++c)
    before += row[c] > row[label] || (row[c] == row[label] && c < label) ? 1 : 0;
  return before;
}

}  // namespace

ClassCounts CountClasses(absl::Span<const float> outputs, int64_t classes,
                         absl::Span<const int32_t> labels) {
  ClassCounts counts;
  const auto width = static_cast<size_t>(classes);
  if (classes <= kMostConfusedClasses) counts.confusion.resize(width * width);
  for (size_t n = 0; n < labels.size(); ++n) {
    const absl::Span<const float> row = outputs.subspan(n * width, width);
    const auto label = static_cast<size_t>(UnpackLabel(labels[n]).larger());
    ++counts.labels;
    counts.among_five += RankOf(row, label) < kFive ? 1 : 0;
    if (counts.confusion.empty()) continue;
    const auto given = std::max_element(row.begin(), row.end()) - row.begin();
    ++counts.confusion[label * width + static_cast<size_t>(given)];
  }
  return counts;
}

ClassCounts CountClasses(const Program& program, const Payload& output, const Payload& labels) {
  const Instruction& loss = program.part(Part::kForwardEval).back();
  const Buffer& logits = program.buffers[loss.inputs[0]];
  if (logits.storage != Storage::kOutput) return {};
  const int64_t classes = logits.shape[logits.shape.rank() - 1];
  std::vector<float> values(static_cast<size_t>(logits.shape.elements()));
  // Without its exponent a tensor of mantissas has the same order.
  TypeOf(logits.dtype)
      .to_float(output.bytes().subspan(static_cast<size_t>(logits.offset_bytes),
                                       values.size() * SizeOf(logits.dtype)),
                /*exponent=*/0, absl::MakeSpan(values));
  std::vector<int32_t> wanted(values.size() / static_cast<size_t>(classes));
  std::memcpy(wanted.data(), labels.bytes().data(), wanted.size() * sizeof(int32_t));
  return CountClasses(values, classes, wanted);
}

}  // namespace runnel
