// What comes over a control stream, as one wire message: of a worker, of central, or Parts of one.

#include "proto/transport/control/control_convert.h"
#include "proto/transport/control/control_parts.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/transport/control_messages.h"

namespace runnel::fuzz {
namespace {

template <typename Wire>
void TryWire(absl::string_view bytes) {
  IncomingMessages<Wire> incoming(1 << 20);
  absl::StatusOr<std::optional<Wire>> whole = incoming.Add(std::string(bytes));
  Require(incoming.held_bytes() <= static_cast<int64_t>(2 * bytes.size()) + 1024,
          "no more is held than came in");
  if (!whole.ok() || !whole->has_value()) return;
  auto message = FromProto(**std::move(whole));
  if (!message.ok()) {
    Require(message.status().code() == absl::StatusCode::kInvalidArgument,
            "a refused message is an InvalidArgument");
    return;
  }
  // What was accepted can be sent on, and is accepted again.
  Require(FromProto(ToProto(*std::move(message))).ok(), "a message that was read can be written");
}

}  // namespace

std::vector<std::string> Seeds() {
  std::vector<std::string> seeds;
  RandomControlMessages random(1);
  for (size_t i = 0; i < std::variant_size_v<WorkerMessage>; ++i)
    seeds.push_back("w" + ToProto(random.FromWorker(i)).SerializeAsString());
  for (size_t i = 0; i < std::variant_size_v<CentralMessage>; ++i)
    seeds.push_back("c" + ToProto(random.FromCentral(i)).SerializeAsString());
  return seeds;
}

void Try(absl::string_view input) {
  if (input.empty()) return;
  const char direction = input[0];
  input.remove_prefix(1);
  direction == 'w' ? TryWire<proto::FromWorker>(input) : TryWire<proto::FromCentral>(input);
}

}  // namespace runnel::fuzz
