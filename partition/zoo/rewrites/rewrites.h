#pragma once

// Rewrites of a model before anything is sent: ModelSpec -> ModelSpec. A worker, a plan and a
// check-point know the rewritten model alone.

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "proto/base/model/model_spec.h"
#include "proto/base/model/model_state.h"

namespace runnel {

struct RewriteRow {
  absl::string_view name;
  absl::string_view arguments;  // behind the colon, for people: "LAYERS"
  absl::string_view summary;
  // InvalidArgument: the arguments do not fit, or not this model.
  absl::StatusOr<ModelSpec> (*apply)(ModelSpec model, absl::string_view arguments);
};

// The table, one file a row in this folder, in the order in which rewrites are applied.
absl::Span<const RewriteRow> Rewrites();

// Each "NAME:ARGUMENTS", those of a row in the order given; the model stays one that InferShapes
// takes.
// InvalidArgument begins with the rewrite; of an unknown name it lists what there is.
absl::StatusOr<ModelSpec> Rewrite(ModelSpec model, const std::vector<std::string>& rewrites);

// ---- the rows

// "N": the first N layers; "A-B": layers A to B, from 0. Their state never steps.
absl::StatusOr<ModelSpec> Freeze(ModelSpec model, absl::string_view layers);
// LoRA: beside each linear operator of attention, where there is none beside each linear operator,
// of layers that are not frozen, a pair: y = W x + U D x, D (rank, in) drawn from N(0, (2 / rank)^2),
// U (out, rank) zero. All but the pairs is frozen. Operators keep the names of their tensors; those
// of the pair of operator "3" are "3.down" and "3.up". The factor 2 of the paper's s / r = 2 lies in
// what D begins with.
absl::StatusOr<ModelSpec> AddPairs(ModelSpec model, absl::string_view rank);
// The linear operator at the model's end for so many classes; it trains and has no pair.
absl::StatusOr<ModelSpec> ReplaceHead(ModelSpec model, absl::string_view classes);

// ---- --recompute

// "N" or "A-B" as Freeze has them: LayerSpec::recompute.
absl::StatusOr<ModelSpec> MarkRecomputed(ModelSpec model, absl::string_view layers);

// ---- --stash

// "bf16", "fp16", "e4m3" or "e5m2": LayerSpec::stash of all layers. InvalidArgument lists these.
absl::StatusOr<ModelSpec> WithStash(ModelSpec model, absl::string_view type);

// ---- --gates

// "ff|lstm:0,3,4,6/6,6,8,12[@beta:PRICE|@hold:SHARE]": the bits of weights and activations of each
// option, then those of gradients. A gate before each residual block: a sum of a layer's input, or
// of one convolution of it, with a chain of at least two convolutions, norms and ReLUs, which the
// gate's choice packs. Without hold it learns, from the block's pooled input, with lstm
// also from the state of the gate in front (OpKind::kCarriedState). Operators keep the names of their
// tensors; new ones are "gate", "packed", "unpacked", and in front of a gate that learns "gate.pool",
// "gate.hidden", "gate.relu", "gate.features", "gate.logits"; with lstm in front of the logits
// "gate.sums", "gate.cell" and "gate.output", and but for the first gate "gate.state", "gate.before"
// and "gate.joined".
// InvalidArgument: the text does not fit, or the model has no such block.
absl::StatusOr<ModelSpec> AddGates(ModelSpec model, absl::string_view text);

// ---- what lora added

bool HasPairs(const ModelSpec& model);
// The model without pairs, whose weights are W + U D. InvalidArgument: the state is not the model's
// in FP32.
absl::Status MergePairs(ModelSpec& model, ModelState& state);

}  // namespace runnel
