#pragma once

// This device's membership in a cluster: the certificate that it got for its token, kept in its
// state folder.

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/statusor.h"
#include "proto/crypto/identity.h"

namespace runnel {

struct Membership {
  Identity identity;
  std::string central;  // control address
};

// Folder of the membership within a state folder.
std::string MembershipFolder(const std::string& state_folder);

// Gets a certificate for the token in `order` and keeps it: TOKEN@HOST:PORT, or TOKEN for a central that
// is found by mDNS. name: as the user
// says, may be empty; otherwise_name: where neither the user nor the token has one; tell:
// JoinOptions::tell. Blocks. Errors
// as ParseJoinOrder, FindCentrals, JoinCluster, WriteIdentity. FailedPrecondition: there is no state folder.
absl::StatusOr<Membership> Join(const std::string& order, const std::string& name,
                                const std::string& otherwise_name, const std::string& state_folder,
                                int64_t timeout_ms,
                                const std::function<void(const std::string&)>& tell = nullptr);

// NotFound: this device has not joined. Others: the files are damaged, or others may read them.
absl::StatusOr<Membership> ReadMembership(const std::string& state_folder);

}  // namespace runnel
