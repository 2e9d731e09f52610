#include "predictor/networks/network_file.h"

#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "proto/base/status_macros.h"

namespace runnel {
namespace {

constexpr absl::string_view kMagic = "runnel-network 1\n";
constexpr absl::string_view kNextMember = "\nrunnel-mlp ";
constexpr size_t kMaxName = 100;

absl::Status Wrong(absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("network: ", what));
}

// Takes the line "KEY: value" off the text.
absl::StatusOr<std::string> TakeLine(absl::string_view key, absl::string_view& text) {
  const size_t end = text.find('\n');
  absl::string_view line = text.substr(0, end);
  if (end == absl::string_view::npos || !absl::ConsumePrefix(&line, key) ||
      !absl::ConsumePrefix(&line, ": ") || line.empty() || line.size() > kMaxName) {
    return Wrong(absl::StrCat("has no line '", key, ": ...' where one belongs"));
  }
  text.remove_prefix(end + 1);
  return std::string(line);
}

}  // namespace

double PredictorNetwork::Evaluate(absl::Span<const float> encoding,
                                  absl::Span<const float> hardware) const {
  double sum = 0;
  for (const Mlp& member : members) sum += member.Evaluate(encoding, hardware);
  return sum / static_cast<double>(members.size());
}

std::string FormatNetwork(const PredictorNetwork& network) {
  std::string text = absl::StrCat(kMagic, "row: ", network.row, "\nmodel: ", network.model,
                                  "\nmembers: ", network.members.size(), "\n");
  for (const Mlp& member : network.members) absl::StrAppend(&text, FormatMlp(member));
  return text;
}

absl::StatusOr<PredictorNetwork> ParseNetwork(absl::string_view text) {
  if (text.size() > kMaxMlpBytes)
    return Wrong(absl::StrCat("over the limit of ", kMaxMlpBytes, " bytes"));
  if (!absl::ConsumePrefix(&text, kMagic)) return Wrong("does not begin with 'runnel-network 1'");
  PredictorNetwork network;
  RUNNEL_ASSIGN_OR_RETURN(network.row, TakeLine("row", text));
  RUNNEL_ASSIGN_OR_RETURN(network.model, TakeLine("model", text));
  RUNNEL_ASSIGN_OR_RETURN(const std::string count, TakeLine("members", text));
  int members = 0;
  if (!absl::SimpleAtoi(count, &members) || members < 1 || members > kMaxNetworkMembers)
    return Wrong(absl::StrCat("members must be a number from 1 to ", kMaxNetworkMembers));
  for (int i = 0; i < members; ++i) {
    const size_t next = text.find(kNextMember);
    const size_t end = i + 1 == members || next == absl::string_view::npos ? text.size() : next + 1;
    RUNNEL_ASSIGN_OR_RETURN(Mlp member, ParseMlp(text.substr(0, end)));
    text.remove_prefix(end);
    network.members.push_back(std::move(member));
    const Mlp& first = network.members.front();
    const Mlp& last = network.members.back();
    if (last.encoding_size() != first.encoding_size() ||
        last.hardware_size() != first.hardware_size())
      return Wrong("its members differ in their inputs");
  }
  return network;
}

}  // namespace runnel
