#include "proto/transport/relay/relay_hello.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace runnel {
namespace {

constexpr char kWants[] = "relay to";
constexpr char kAnswers[] = "relay answer";

}  // namespace

Frame MakeRelayHello(const RelayHello& hello) {
  const std::string text =
      absl::StrCat(hello.answers ? kAnswers : kWants, "\n", hello.secret, "\n", hello.from);
  Frame frame;
  frame.header.kind = FrameKind::kHello;
  frame.payload = Payload::CopyOf(
      absl::MakeConstSpan(reinterpret_cast<const std::byte*>(text.data()), text.size()));
  SealFrame(frame);
  return frame;
}

absl::StatusOr<RelayHello> ParseRelayHello(const Frame& frame) {
  const absl::Span<const std::byte> bytes = frame.payload.bytes();
  const absl::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  const std::vector<absl::string_view> lines = absl::StrSplit(text, '\n');
  const bool is_one = frame.header.kind == FrameKind::kHello && lines.size() == 3 &&
                      (lines[0] == kWants || lines[0] == kAnswers) && !lines[1].empty();
  if (!is_one) return absl::InvalidArgumentError("relay: the first frame is no hello to a relay");
  return RelayHello{lines[0] == kAnswers, std::string(lines[1]), std::string(lines[2])};
}

}  // namespace runnel
