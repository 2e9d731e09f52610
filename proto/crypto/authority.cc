#include "proto/crypto/authority.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "proto/base/status_macros.h"
#include "proto/base/worker_name.h"
#include "proto/crypto/sha256.h"
#include "proto/process/atomic_file.h"

namespace runnel {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kDay = 86'400;
// Certificates begin earlier, so that a device whose clock is behind can use a new one.
constexpr int64_t kBackdate = kDay;
constexpr int64_t kAuthorityLife = 3650 * kDay;
constexpr int64_t kServerLife = 365 * kDay;
// A worker that was away for longer needs a new token.
constexpr int64_t kWorkerLife = 90 * kDay;
constexpr int64_t kMaxFileBytes = 16 << 10;
constexpr char kUsed[] = ".used";

std::string Variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

bool IsThere(const std::string& path) { return access(path.c_str(), F_OK) == 0; }

// Names that workers may not have: those of central and its own workers.
absl::Status CheckGivenName(absl::string_view field, const std::string& name) {
  RUNNEL_RETURN_IF_ERROR(CheckWorkerName(field, name));
  if (name != kCentralName && !absl::StartsWithIgnoreCase(name, "local-")) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(field, " \"", name, "\": central and its own workers have such names"));
}

std::string TokenPath(const std::string& folder, absl::string_view secret) {
  return absl::StrCat(folder, "/tokens/", Sha256Hex(secret));
}

// A token's file: "EXPIRES NAME", the name may be empty.
struct KeptToken {
  int64_t expires_s = 0;
  std::string name;
};

absl::StatusOr<KeptToken> ReadToken(const std::string& path) {
  RUNNEL_ASSIGN_OR_RETURN(const std::string text, ReadWholeFile(path, kMaxFileBytes));
  const std::vector<std::string> parts = absl::StrSplit(absl::StripAsciiWhitespace(text), ' ');
  KeptToken token;
  if (parts.empty() || !absl::SimpleAtoi(parts[0], &token.expires_s))
    return absl::DataLossError(absl::StrCat(path, ": is damaged"));
  if (parts.size() > 1) token.name = parts[1];
  return token;
}

}  // namespace

std::string DefaultAuthorityFolder() {
  if (const char* given = std::getenv("RUNNEL_HOME")) return given;
  if (const std::string config = Variable("XDG_CONFIG_HOME"); !config.empty())
    return absl::StrCat(config, "/runnel");
  const std::string home = Variable("HOME");
  return home.empty() ? "" : absl::StrCat(home, "/.config/runnel");
}

absl::StatusOr<std::unique_ptr<Authority>> Authority::Create(const std::string& folder,
                                                             WallClock now_s) {
  if (IsThere(folder + "/authority.pem")) {
    return absl::AlreadyExistsError(
        absl::StrCat("--home ", folder, ": holds a certificate authority already"));
  }
  RUNNEL_RETURN_IF_ERROR(MakePrivateFolder(folder));
  for (const char* part : {"/tokens", "/certificates", "/revoked"})
    RUNNEL_RETURN_IF_ERROR(MakePrivateFolder(folder + part));
  const int64_t now = now_s();
  RUNNEL_ASSIGN_OR_RETURN(const Signer signer, NewSigner(now - kBackdate, now + kAuthorityLife));
  RUNNEL_RETURN_IF_ERROR(WritePrivateFile(folder + "/authority.key", signer.key_pem));
  // Last: with this file the folder counts.
  RUNNEL_RETURN_IF_ERROR(WritePrivateFile(folder + "/authority.pem", signer.certificate_pem));
  return Open(folder, std::move(now_s));
}

absl::StatusOr<std::unique_ptr<Authority>> Authority::Open(const std::string& folder,
                                                           WallClock now_s) {
  Signer signer;
  absl::StatusOr<std::string> certificate = ReadWholeFile(folder + "/authority.pem", kMaxFileBytes);
  if (absl::IsNotFound(certificate.status())) {
    return absl::NotFoundError(
        absl::StrCat("--home ", folder,
                     ": has no certificate authority; make one with: ", "runnel-central init"));
  }
  RUNNEL_RETURN_IF_ERROR(certificate.status());
  signer.certificate_pem = *std::move(certificate);
  RUNNEL_ASSIGN_OR_RETURN(signer.key_pem, ReadWholeFile(folder + "/authority.key", kMaxFileBytes));
  std::unique_ptr<Authority> authority(new Authority(folder, std::move(signer), std::move(now_s)));
  RUNNEL_RETURN_IF_ERROR(authority->KeepIdentity(authority->server_folder(), CentralSubject()));
  RUNNEL_RETURN_IF_ERROR(
      authority->KeepIdentity(authority->operator_folder(), {Role::kOperator, "operator"}));
  return authority;
}

absl::Status Authority::KeepIdentity(const std::string& folder, const Subject& subject) const {
  const absl::StatusOr<Identity> kept = ReadIdentity(folder);
  if (kept.ok()) {
    RUNNEL_ASSIGN_OR_RETURN(const CertificateInfo info, ReadCertificate(kept->certificate_pem));
    if (!IsRenewalDue(info, now_s_())) return absl::OkStatus();
  } else if (!absl::IsNotFound(kept.status())) {
    return kept.status();
  }
  RUNNEL_ASSIGN_OR_RETURN(const Identity identity, IssueOwn(subject, kServerLife));
  return WriteIdentity(folder, identity);
}

absl::StatusOr<Identity> Authority::IssueOwn(const Subject& subject, int64_t lifetime_s) const {
  Identity identity;
  RUNNEL_ASSIGN_OR_RETURN(identity.key_pem, NewKey());
  RUNNEL_ASSIGN_OR_RETURN(const std::string request, NewRequest(identity.key_pem));
  const int64_t now = now_s_();
  RUNNEL_ASSIGN_OR_RETURN(identity.certificate_pem,
                          Issue(signer_, request, subject, now - kBackdate, now + lifetime_s));
  identity.authority_pem = signer_.certificate_pem;
  return identity;
}

absl::StatusOr<Identity> Authority::ServerIdentity() const { return ReadIdentity(server_folder()); }

absl::StatusOr<Identity> Authority::IssueLocal(const std::string& name) const {
  return IssueOwn({Role::kWorker, name}, kServerLife);
}

void Authority::RemoveOldTokens() const {
  std::error_code ignored;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder_ + "/tokens", ignored)) {
    const absl::StatusOr<KeptToken> token = ReadToken(entry.path().string());
    // For a day a late user is told the fate of the token.
    if (token.ok() && token->expires_s + kDay < now_s_()) fs::remove(entry.path(), ignored);
  }
}

absl::StatusOr<JoinToken> Authority::NewToken(const std::string& name, int64_t lifetime_s) const {
  if (!name.empty()) RUNNEL_RETURN_IF_ERROR(CheckGivenName("--name", name));
  RemoveOldTokens();
  RUNNEL_ASSIGN_OR_RETURN(std::string hash, KeyHash(signer_.certificate_pem));
  JoinToken token = NewJoinToken(std::move(hash));
  RUNNEL_RETURN_IF_ERROR(WritePrivateFile(TokenPath(folder_, token.secret),
                                          absl::StrCat(now_s_() + lifetime_s, " ", name, "\n")));
  return token;
}

absl::StatusOr<Identity> Authority::Redeem(const JoinRequest& request) const {
  const std::string path = TokenPath(folder_, request.secret);
  const absl::StatusOr<KeptToken> token = ReadToken(path);
  if (!token.ok()) {
    return absl::PermissionDeniedError(IsThere(path + kUsed)
                                           ? "the token was used already: make another one"
                                           : "this central knows no such token");
  }
  if (now_s_() >= token->expires_s)
    return absl::PermissionDeniedError("the token has expired: make another one");
  const std::string wished = request.name.empty() ? request.otherwise_name : request.name;
  const std::string name = token->name.empty() ? wished : token->name;
  RUNNEL_RETURN_IF_ERROR(CheckGivenName("--name", name));
  if (!request.name.empty() && request.name != name) {
    return absl::InvalidArgumentError(
        absl::StrCat("--name ", absl::CEscape(request.name), ": the token is for ", name));
  }
  if (token->name.empty() && IsTaken(name)) {
    return absl::InvalidArgumentError(
        absl::StrCat("--name ", name, ": another worker is called so; a token of `runnel-central ",
                     "token --name ", name, "` takes its place"));
  }
  // Checked before the token is gone.
  RUNNEL_RETURN_IF_ERROR(Issue(signer_, request.request_pem, {Role::kWorker, name}, 0, 1).status());
  // Of several that show it at the same time one succeeds.
  if (std::rename(path.c_str(), (path + kUsed).c_str()) != 0)
    return absl::PermissionDeniedError("the token was used already: make another one");
  const std::vector<std::string> replaced = SerialsOf(name);
  Identity identity;
  RUNNEL_ASSIGN_OR_RETURN(identity.certificate_pem, IssueWorker(name, request.request_pem));
  identity.authority_pem = signer_.certificate_pem;
  for (const std::string& serial : replaced) RUNNEL_RETURN_IF_ERROR(RevokeSerial(serial));
  return identity;
}

absl::StatusOr<std::string> Authority::IssueWorker(const std::string& name,
                                                   absl::string_view request_pem) const {
  const int64_t now = now_s_();
  RUNNEL_ASSIGN_OR_RETURN(
      const std::string certificate,
      Issue(signer_, request_pem, {Role::kWorker, name}, now - kBackdate, now + kWorkerLife));
  RUNNEL_ASSIGN_OR_RETURN(const CertificateInfo info, ReadCertificate(certificate));
  const std::string folder = absl::StrCat(folder_, "/certificates/", absl::AsciiStrToLower(name));
  RUNNEL_RETURN_IF_ERROR(MakePrivateFolder(folder));
  RUNNEL_RETURN_IF_ERROR(WritePrivateFile(absl::StrCat(folder, "/", info.serial),
                                          absl::StrCat(info.not_after_s, " ", name, "\n")));
  return certificate;
}

absl::StatusOr<std::string> Authority::Renew(const CertificateInfo& old,
                                             absl::string_view request_pem) const {
  RUNNEL_RETURN_IF_ERROR(Check(old));
  RUNNEL_ASSIGN_OR_RETURN(const std::string certificate,
                          IssueWorker(old.subject.name, request_pem));
  // It was revoked meanwhile, and the revocation may not have seen the new certificate.
  if (const absl::Status status = Check(old); !status.ok()) {
    RUNNEL_ASSIGN_OR_RETURN(const CertificateInfo info, ReadCertificate(certificate));
    RUNNEL_RETURN_IF_ERROR(RevokeSerial(info.serial));
    return status;
  }
  return certificate;
}

std::vector<std::string> Authority::SerialsOf(const std::string& name) const {
  std::vector<std::string> serials;
  std::error_code ignored;
  const std::string folder = absl::StrCat(folder_, "/certificates/", absl::AsciiStrToLower(name));
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, ignored))
    serials.push_back(entry.path().filename().string());
  return serials;
}

bool Authority::IsRevoked(const std::string& serial) const {
  return IsThere(absl::StrCat(folder_, "/revoked/", serial));
}

absl::Status Authority::RevokeSerial(const std::string& serial) const {
  return WritePrivateFile(absl::StrCat(folder_, "/revoked/", serial), "");
}

bool Authority::IsTaken(const std::string& name) const {
  const std::string folder =
      absl::StrCat(folder_, "/certificates/", absl::AsciiStrToLower(name), "/");
  const std::vector<std::string> serials = SerialsOf(name);
  return std::any_of(serials.begin(), serials.end(), [&](const std::string& serial) {
    // "NOT_AFTER NAME", as a token's file.
    const absl::StatusOr<KeptToken> issued = ReadToken(folder + serial);
    return issued.ok() && issued->expires_s > now_s_() && !IsRevoked(serial);
  });
}

absl::Status Authority::Check(const CertificateInfo& certificate) const {
  if (IsRevoked(certificate.serial)) {
    return absl::PermissionDeniedError(
        absl::StrCat("the certificate of ", certificate.subject.name, " was revoked"));
  }
  if (now_s_() <= certificate.not_after_s) return absl::OkStatus();
  return absl::PermissionDeniedError(
      absl::StrCat("the certificate of ", certificate.subject.name, " has expired"));
}

absl::Status Authority::Revoke(const std::string& name) const {
  RUNNEL_RETURN_IF_ERROR(CheckWorkerName("NAME", name));
  const std::vector<std::string> serials = SerialsOf(name);
  if (serials.empty()) {
    return absl::NotFoundError(
        absl::StrCat("revoke ", name, ": no worker of this name has a certificate"));
  }
  for (const std::string& serial : serials) RUNNEL_RETURN_IF_ERROR(RevokeSerial(serial));
  // One that was renewed at the same moment.
  for (const std::string& serial : SerialsOf(name)) RUNNEL_RETURN_IF_ERROR(RevokeSerial(serial));
  return absl::OkStatus();
}

}  // namespace runnel
