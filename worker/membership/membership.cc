#include "worker/membership/membership.h"

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "proto/base/status_macros.h"
#include "proto/crypto/join_client.h"
#include "proto/process/atomic_file.h"
#include "proto/transport/link/address.h"

namespace runnel {
namespace {

constexpr char kCentralFile[] = "/central";
constexpr int64_t kMaxAddressBytes = 1024;

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
  RUNNEL_ASSIGN_OR_RETURN(const JoinOrder order, ParseJoinOrder(order_text));
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
