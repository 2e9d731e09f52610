// Texts that users and devices hand in: scenarios, device profiles, predictor networks, tokens and
// what is said at the join door, and names of codecs.

#include "central/reports/scenario_file.h"
#include "compress/codec.h"
#include "predictor/networks/network_file.h"
#include "predictor/profiles/profile_file.h"
#include "proto/crypto/join_exchange.h"
#include "proto/crypto/join_token.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/support/scratch.h"

namespace runnel::fuzz {
namespace {

std::string Source(const std::string& path) {
  return Slurp(std::string(RUNNEL_SOURCE_DIR) + "/" + path);
}

}  // namespace

std::vector<std::string> Seeds() {
  return {"s" + Source("deploy/lab/scenarios/accept-1.json"),
          "s" + Source("deploy/lab/scenarios/radio-boards.json"),
          "p" + Source("predictor/profiles/t2.profile").substr(0, 4000),
          "n" + Source("predictor/profiles/accept_lenet.network").substr(0, 4000),
          "j" + NewJoinToken(std::string(32, 'h')).ToString() + "@host:7001",
          "q" + JoinRequest{"secret", "pi-1", "", "-----BEGIN-----\n"}.ToString(),
          "r" + JoinReply{7000, "-----BEGIN-----\n"}.ToString(),
          "r" + JoinRefusal("no such token"),
          "chadamard:2",
          "ctopk:0.01"};
}

void Try(absl::string_view input) {
  if (input.empty()) return;
  const char kind = input[0];
  input.remove_prefix(1);
  absl::Status status;
  if (kind == 's') status = ScenarioFromJson(input).status();
  if (kind == 'p') status = ParseProfile(input).status();
  if (kind == 'n') status = ParseNetwork(input).status();
  if (kind == 'j') status = ParseJoinOrder(input).status();
  if (kind == 'q') status = ParseJoinRequest(input).status();
  if (kind == 'r') status = ParseJoinReply(input).status();
  if (kind == 'c') status = MakeCodec(input).status();
  Require(status.message().find('\n') == absl::string_view::npos, "errors are one line");
}

}  // namespace runnel::fuzz
