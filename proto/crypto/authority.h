#pragma once

// The certificate authority of a cluster: a folder on central's host.
//
//   authority.pem, authority.key     certificate and key that sign all others
//   server/, operator/               identities (identity.h) of central and of operators
//   tokens/HASH                      an unused token, under the hash of its secret
//   certificates/NAME/SERIAL         certificates issued to workers; NAME in lower case
//   revoked/SERIAL                   revoked certificates
//
// Everything is a file that is made or renamed in one step, so a command that revokes or makes a
// token and a run that goes on see each other at once. Thread-safe.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "proto/crypto/certificate.h"
#include "proto/crypto/identity.h"
#include "proto/crypto/join_exchange.h"
#include "proto/crypto/join_token.h"

namespace runnel {

// $RUNNEL_HOME, $XDG_CONFIG_HOME/runnel, or ~/.config/runnel; the first of these that can be had.
// Empty: none can, or $RUNNEL_HOME is set and empty.
std::string DefaultAuthorityFolder();

class Authority {
 public:
  // Makes the folder. AlreadyExists: it holds an authority. Others as proto/process/atomic_file.h.
  static absl::StatusOr<std::unique_ptr<Authority>> Create(const std::string& folder,
                                                           WallClock now_s);
  // NotFound: `runnel-central init` was not called for it. Others: the folder is damaged. Renews
  // the identities of central and operator if that is due.
  static absl::StatusOr<std::unique_ptr<Authority>> Open(const std::string& folder,
                                                         WallClock now_s);

  const std::string& folder() const { return folder_; }
  const std::string& certificate_pem() const { return signer_.certificate_pem; }
  absl::StatusOr<Identity> ServerIdentity() const;
  std::string server_folder() const { return folder_ + "/server"; }
  std::string operator_folder() const { return folder_ + "/operator"; }

  // A token that one worker may use within so many seconds. name: the only name that it gives, and
  // then it replaces an older certificate of that name; empty: any name that is free.
  // InvalidArgument: the name is none that a worker may have.
  absl::StatusOr<JoinToken> NewToken(const std::string& name, int64_t lifetime_s) const;
  // Uses the token of the request up and certifies its key. PermissionDenied: the secret is of no
  // token, or of one that was used or has expired. InvalidArgument: the name is taken or none that
  // a worker may have, or the request is broken; the token is then still good.
  absl::StatusOr<Identity> Redeem(const JoinRequest& request) const;
  // Another certificate for a worker that has one. PermissionDenied: as Check. InvalidArgument: the
  // request is broken.
  absl::StatusOr<std::string> Renew(const CertificateInfo& old,
                                    absl::string_view request_pem) const;
  // A certificate for a worker that central starts on its own host. Its key lives as long as the
  // process.
  absl::StatusOr<Identity> IssueLocal(const std::string& name) const;

  // PermissionDenied: the certificate was revoked, or has expired meanwhile.
  absl::Status Check(const CertificateInfo& certificate) const;
  // Revokes all certificates of the worker. NotFound: it never had one.
  absl::Status Revoke(const std::string& name) const;

 private:
  Authority(std::string folder, Signer signer, WallClock now_s)
      : folder_(std::move(folder)), signer_(std::move(signer)), now_s_(std::move(now_s)) {}

  absl::StatusOr<Identity> IssueOwn(const Subject& subject, int64_t lifetime_s) const;
  absl::Status KeepIdentity(const std::string& folder, const Subject& subject) const;
  absl::StatusOr<std::string> IssueWorker(const std::string& name,
                                          absl::string_view request_pem) const;
  // File names of certificates/NAME.
  std::vector<std::string> SerialsOf(const std::string& name) const;
  bool IsRevoked(const std::string& serial) const;
  absl::Status RevokeSerial(const std::string& serial) const;
  // A certificate of this name is good.
  bool IsTaken(const std::string& name) const;
  void RemoveOldTokens() const;

  const std::string folder_;
  const Signer signer_;
  const WallClock now_s_;
};

}  // namespace runnel
