#include "partition/zoo/models.h"
#include "partition/zoo/ops.h"

namespace runnel::zoo {

// Predicts each byte of a text from the byte before it: all that one byte says of the next.
ModelSpec Bigram() {
  constexpr int64_t kBytes = 256;
  ModelSpec model;
  model.name = "bigram";
  model.input = {128};
  model.classes = kBytes;
  OpSpec hidden = Linear(0, 128);
  OpSpec logits = Linear(0, kBytes);
  hidden.bias = logits.bias = true;
  model.layers = {{"embedding", {Embedding(0, kBytes, 64)}},
                  {"fc1", {hidden, Plain(OpKind::kRelu, 1)}},
                  {"fc2", {logits}}};
  return model;
}

TrainingDefaults BigramDefaults() {
  return {.batch_size = 64,
          .epochs = 1,
          .learning_rate = 0.2,
          .momentum = 0.9,
          .weight_decay = 0,
          .milestones = {}};
}

}  // namespace runnel::zoo
