// What a neighbour sends of its state: the size of a piece, then the bytes of the state.

#include <algorithm>
#include <memory>

#include "partition/zoo/zoo.h"
#include "proto/base/model/initial_state.h"
#include "tests/fuzz/fuzz_target.h"
#include "worker/replication/replica_stream.h"

namespace runnel::fuzz {
namespace {

// The first convolution, which is small, and a layer without parameters.
constexpr int kLast = 1;
constexpr int64_t kMaxEncoderBytes = 200;

const ModelSpec& Model() {
  static const ModelSpec model = MakeModel("lenet").value();
  return model;
}

// What both ends have: an encoder, of whose state changes may come.
std::shared_ptr<const SummedState> Base() {
  static const auto base = [] {
    ModelState state = Slice(InitialState(Model(), 3).value(), 0, kLast);
    state.encoders = {{1, Direction::kForward, "mbq:4", std::string(100, 'b')}};
    return std::make_shared<const SummedState>(std::move(state));
  }();
  return base;
}

}  // namespace

std::vector<std::string> Seeds() {
  std::vector<std::string> seeds;
  ModelState state = Slice(InitialState(Model(), 3).value(), 0, kLast);
  for (const int encoders : {0, 1, 2}) {
    if (encoders > 0)
      state.encoders.push_back({encoders, kDirections[encoders - 1], "mbq:4", "its state"});
    if (encoders == 1) state.encoders.back().state = Base()->state.encoders[0].state;
    ReplicaWriter writer(std::make_shared<const SummedState>(state), Base().get());
    std::string bytes(static_cast<size_t>(writer.left()), '\0');
    writer.Read(absl::MakeSpan(reinterpret_cast<std::byte*>(bytes.data()), bytes.size()));
    for (const char piece : {'\1', '\x7f'}) seeds.push_back(piece + bytes);
  }
  return seeds;
}

void Try(absl::string_view input) {
  if (input.empty()) return;
  const size_t piece = 1 + static_cast<uint8_t>(input[0]);
  input.remove_prefix(1);
  ReplicaReader reader =
      ReplicaReader::Create(Model(), 0, kLast, {}, kMaxEncoderBytes, Base()).value();
  while (!input.empty()) {
    const absl::string_view bytes = input.substr(0, piece);
    const absl::Status added = reader.Add(
        absl::MakeConstSpan(reinterpret_cast<const std::byte*>(bytes.data()), bytes.size()));
    if (!added.ok()) return;
    input.remove_prefix(bytes.size());
  }
  if (!reader.whole()) return;
  const SummedState copy = reader.Take();
  Require(CheckState(copy.state, Model(), 0, kLast).ok(), "a whole state is one of these layers");
  ReplicaWriter writer(std::make_shared<const SummedState>(copy));
  Require(writer.left() > 0, "it can be sent on");
}

}  // namespace runnel::fuzz
