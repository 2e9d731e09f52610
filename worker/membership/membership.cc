#include "worker/membership/membership.h"

#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "proto/base/status_macros.h"
#include "proto/crypto/join_client.h"
#include "proto/process/atomic_file.h"
#include "proto/transport/link/address.h"
#include "worker/membership/find_central.h"

namespace runnel {
namespace {

constexpr char kCentralFile[] = "/central";
constexpr int64_t kMaxAddressBytes = 1024;

absl::StatusOr<Membership> JoinAt(const JoinOrder& order, const std::string& name,
                                  const std::string& otherwise_name,
                                  const std::string& state_folder, int64_t timeout_ms,
                                  const std::function<void(const std::string&)>& tell) {
  RUNNEL_ASSIGN_OR_RETURN(Address address, ParseAddress(order.address));
  // A folder that cannot be written is found before the token is used up.
  RUNNEL_RETURN_IF_ERROR(MakePrivateFolder(MembershipFolder(state_folder)));
  const JoinOptions options{.token = order.token,
                            .host = address.host,
                            .port = address.port,
                            .name = name,
                            .otherwise_name = otherwise_name,
                            .timeout_ms = timeout_ms,
                            .tell = tell};
  RUNNEL_ASSIGN_OR_RETURN(Joined joined, JoinCluster(options));
  address.port = joined.control_port;
  Membership membership{std::move(joined.identity), address.ToString()};
  const std::string folder = MembershipFolder(state_folder);
  RUNNEL_RETURN_IF_ERROR(WritePrivateFile(folder + kCentralFile, membership.central + "\n"));
  RUNNEL_RETURN_IF_ERROR(WriteIdentity(folder, membership.identity));
  return membership;
}

}  // namespace

std::string MembershipFolder(const std::string& state_folder) {
  return absl::StrCat(state_folder, "/identity");
}

absl::StatusOr<Membership> Join(const std::string& order_text, const std::string& name,
                                const std::string& otherwise_name, const std::string& state_folder,
                                int64_t timeout_ms,
                                const std::function<void(const std::string&)>& tell) {
  if (state_folder.empty()) {
    return absl::FailedPreconditionError(
        "--join: keeps the certificate in --state-dir, and there is none");
  }
  if (absl::StrContains(order_text, '@')) {
    RUNNEL_ASSIGN_OR_RETURN(const JoinOrder order, ParseJoinOrder(order_text));
    return JoinAt(order, name, otherwise_name, state_folder, timeout_ms, tell);
  }
  // What is no token is not looked for.
  RUNNEL_RETURN_IF_ERROR(ParseJoinOrder(order_text + "@127.0.0.1:1").status());
  RUNNEL_ASSIGN_OR_RETURN(const std::vector<std::string> found, FindCentrals());
  absl::Status first_error;
  for (const std::string& address : found) {
    if (tell != nullptr) tell(absl::StrCat("found a central at ", address));
    RUNNEL_ASSIGN_OR_RETURN(const JoinOrder order,
                            ParseJoinOrder(absl::StrCat(order_text, "@", address)));
    absl::StatusOr<Membership> joined =
        JoinAt(order, name, otherwise_name, state_folder, timeout_ms, tell);
    if (joined.ok()) return joined;
    if (first_error.ok()) first_error = joined.status();
  }
  return first_error;
}

absl::StatusOr<Membership> ReadMembership(const std::string& state_folder) {
  const std::string folder = MembershipFolder(state_folder);
  Membership membership;
  RUNNEL_ASSIGN_OR_RETURN(membership.identity, ReadIdentity(folder));
  RUNNEL_ASSIGN_OR_RETURN(membership.central,
                          ReadWholeFile(folder + kCentralFile, kMaxAddressBytes));
  absl::StripAsciiWhitespace(&membership.central);
  return membership;
}

}  // namespace runnel
