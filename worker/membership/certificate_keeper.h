#pragma once

// Renews this device's certificate before it expires, as long as the process lives.

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

#include "absl/status/statusor.h"
#include "proto/base/log.h"
#include "proto/crypto/identity.h"

namespace runnel {

// If it is due: a new key, its certificate by `ask_central` (RenewCertificate), and from then on
// both in `holder`. OK: done, or not due. PermissionDenied: central sent what does not belong to
// this device, or by this clock the certificate does not hold.
absl::Status RenewIfDue(
    IdentityHolder* holder, int64_t now_s,
    const std::function<absl::StatusOr<std::string>(const std::string&)>& ask_central);

// Looks now and every hour, on a thread of its own.
class CertificateKeeper {
 public:
  using AskFn = std::function<absl::StatusOr<std::string>(const std::string& request_pem)>;

  // All outlive it.
  CertificateKeeper(IdentityHolder* holder, WallClock now_s, Logger* logger, AskFn ask_central);
  // Waits for a question that is out.
  ~CertificateKeeper();

 private:
  void Work();

  IdentityHolder* const holder_;
  const WallClock now_s_;
  Logger* const logger_;
  const AskFn ask_central_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool ending_ = false;  // guarded by mutex_
  std::thread thread_;   // last
};

}  // namespace runnel
