// A check-point's payload in a right envelope (its digest keeps everything else out), or a whole
// file.

#include "central/records/checkpoint.h"
#include "central/settings/run_settings.h"
#include "proto/base/model/initial_state.h"
#include "proto/crypto/sha256.h"
#include "tests/central/sample_model.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/fuzz/memory_file.h"
#include "tests/support/scratch.h"

namespace runnel::fuzz {
namespace {

constexpr size_t kEnvelopeBytes = 8 + 4 + 8 + 32;

std::string Envelope(absl::string_view payload) {
  std::string file = "RNLCKPT\n";
  for (int i = 0; i < 4; ++i) file.push_back(static_cast<char>(kCheckpointVersion >> (8 * i)));
  for (int i = 0; i < 8; ++i)
    file.push_back(static_cast<char>(uint64_t{payload.size()} >> (8 * i)));
  return file + Sha256(payload) + std::string(payload);
}

}  // namespace

std::vector<std::string> Seeds() {
  Checkpoint sample;
  sample.step = 100;
  sample.resumable = true;
  sample.model = testing::SampleModel();
  sample.settings = WithDefaults(RunSettings(), testing::SampleDefaults(), "digits", 1);
  sample.plan.generation = Generation(3);
  sample.plan.schedule = "async_1f1b";
  sample.plan.stages = {{{Seat{DeviceId(0)}}, 0, 0, 2}, {{Seat{DeviceId(1)}}, 1, 2, 1}};
  sample.plan.links.resize(1);
  sample.training.dataset_samples = 1000;
  sample.training.eval_batch_size = 64;
  sample.device_names = {"local", "pi"};
  sample.state = InitialState(sample.model, 5).value();
  ScratchDir folder;
  const std::string whole = Slurp(WriteCheckpoint(sample, folder.path()).value());
  return {"p" + whole.substr(kEnvelopeBytes), "f" + whole};
}

void Try(absl::string_view input) {
  if (input.empty()) return;
  const bool is_payload = input[0] == 'p';
  input.remove_prefix(1);
  const MemoryFile file(is_payload ? Envelope(input) : std::string(input));
  const absl::StatusOr<Checkpoint> checkpoint = ReadCheckpoint(file.path());
  if (checkpoint.ok()) return;
  Require(checkpoint.status().message().find('\n') == absl::string_view::npos,
          "errors are one line");
}

}  // namespace runnel::fuzz
