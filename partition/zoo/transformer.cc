// Decoders of text: an embedding with positions, pre-norm blocks, a head that is not tied to the
// embedding, since a tied weight would live on two stages.

#include <cmath>
#include <string>

#include "absl/strings/str_cat.h"
#include "partition/zoo/models.h"
#include "partition/zoo/ops.h"

namespace runnel::zoo {
namespace {

struct Form {
  int64_t tokens;
  int64_t features;
  int64_t heads;
  int64_t hidden;
  int blocks;
  double dropout;
};
constexpr Form kTiny = {256, 128, 4, 512, 4, 0};
constexpr Form kSmall = {33278, 256, 4, 1024, 4, 0.1};
constexpr Form kBase = {33278, 512, 8, 2048, 6, 0.1};
constexpr double kInitStd = 0.02;

class Block {
 public:
  explicit Block(std::string name) { layer_.name = std::move(name); }

  int32_t Append(OpSpec op) {
    layer_.ops.push_back(std::move(op));
    return static_cast<int32_t>(layer_.ops.size());
  }
  int32_t Product(int32_t input, int64_t features, double init_std, bool bias = true) {
    OpSpec op = Linear(input, features);
    op.bias = bias;
    op.init = InitKind::kNormal;
    op.init_std = init_std;
    return Append(std::move(op));
  }
  int32_t Norm(int32_t input) { return Append(Plain(OpKind::kLayerNorm, input)); }
  // A branch's end and what it is added to.
  void Join(int32_t branch, int32_t trunk, double dropout) {
    Append(Add(trunk, dropout > 0 ? Append(Dropout(branch, dropout)) : branch));
  }
  int32_t last() const { return static_cast<int32_t>(layer_.ops.size()); }
  LayerSpec Take() { return std::move(layer_); }

 private:
  LayerSpec layer_;
};

// Residual branches begin smaller, so that their sum over the blocks does not grow.
LayerSpec MakeBlock(int index, const Form& form) {
  const double branch_std = kInitStd / std::sqrt(2.0 * form.blocks);
  Block block(absl::StrCat("block", index));
  const int32_t queries = block.Product(block.Norm(0), 3 * form.features, kInitStd);
  OpSpec attention = Plain(OpKind::kAttention, queries);
  attention.heads = form.heads;
  block.Join(block.Product(block.Append(attention), form.features, branch_std), 0, form.dropout);
  const int32_t trunk = block.last();
  const int32_t hidden = block.Product(block.Norm(trunk), form.hidden, kInitStd);
  block.Join(block.Product(block.Append(Plain(OpKind::kGelu, hidden)), form.features, branch_std),
             trunk, form.dropout);
  return block.Take();
}

ModelSpec Make(const char* name, const Form& form) {
  ModelSpec model;
  model.name = name;
  model.input = {128};
  model.classes = form.tokens;
  OpSpec embedding = Embedding(0, form.tokens, form.features);
  embedding.positions = true;
  embedding.init_std = kInitStd;
  model.layers.push_back({"embedding", {embedding}});
  for (int i = 1; i <= form.blocks; ++i) model.layers.push_back(MakeBlock(i, form));
  Block head("head");
  head.Product(head.Norm(0), form.tokens, kInitStd, /*bias=*/false);
  model.layers.push_back(head.Take());
  return model;
}

}  // namespace

ModelSpec TransformerTiny() { return Make("transformer_tiny", kTiny); }
ModelSpec TransformerSmall() { return Make("transformer_small", kSmall); }
ModelSpec TransformerBase() { return Make("transformer_base", kBase); }

TrainingDefaults TransformerDefaults() {
  return {.batch_size = 32,
          .epochs = 1,
          .learning_rate = 0.1,
          .momentum = 0.9,
          .weight_decay = 1e-4,
          .milestones = {}};
}

}  // namespace runnel::zoo
