#include "worker/membership/certificate_keeper.h"

#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/base/status_macros.h"

namespace runnel {

absl::Status RenewIfDue(
    IdentityHolder* holder, int64_t now_s,
    const std::function<absl::StatusOr<std::string>(const std::string&)>& ask_central) {
  const CertificateInfo old = holder->info();
  Identity identity = holder->Get();
  // A device whose clock is wrong reaches nobody, and gRPC does not say why.
  RUNNEL_RETURN_IF_ERROR(VerifySignature(identity.certificate_pem, identity.authority_pem, now_s));
  if (!IsRenewalDue(old, now_s)) return absl::OkStatus();
  RUNNEL_ASSIGN_OR_RETURN(identity.key_pem, NewKey());
  RUNNEL_ASSIGN_OR_RETURN(const std::string request, NewRequest(identity.key_pem));
  RUNNEL_ASSIGN_OR_RETURN(identity.certificate_pem, ask_central(request));
  RUNNEL_RETURN_IF_ERROR(VerifySignature(identity.certificate_pem, identity.authority_pem, now_s));
  RUNNEL_ASSIGN_OR_RETURN(const CertificateInfo renewed, ReadCertificate(identity.certificate_pem));
  if (!(renewed.subject == old.subject))
    return absl::PermissionDeniedError("central sent the certificate of another device");
  return holder->Replace(std::move(identity));
}

CertificateKeeper::CertificateKeeper(IdentityHolder* holder, WallClock now_s, Logger* logger,
                                     AskFn ask_central)
    : holder_(holder),
      now_s_(std::move(now_s)),
      logger_(logger),
      ask_central_(std::move(ask_central)),
      thread_([this] { Work(); }) {}

CertificateKeeper::~CertificateKeeper() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    ending_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

void CertificateKeeper::Work() {
  constexpr std::chrono::hours kBetween{1};
  std::unique_lock<std::mutex> lock(mutex_);
  while (!ending_) {
    lock.unlock();
    const absl::Status status = RenewIfDue(holder_, now_s_(), ask_central_);
    if (!status.ok()) {
      logger_->Log(Severity::kWarning,
                   absl::StrCat("this device's certificate does not hold, or was not renewed: ",
                                status.message()));
    }
    lock.lock();
    changed_.wait_for(lock, kBetween, [this] { return ending_; });
  }
}

}  // namespace runnel
