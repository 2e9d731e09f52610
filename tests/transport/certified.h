#pragma once

// Members of a cluster with certificates, for tests of what they encrypt.

#include <memory>
#include <string>
#include <utility>

#include "proto/crypto/authority.h"
#include "proto/transport/grpc/security/grpc_security.h"

namespace runnel {

inline GrpcSecurity SecurityOf(Identity identity) {
  GrpcSecurity security;
  security.identity = std::make_shared<IdentityHolder>(std::move(identity), "");
  return security;
}

// A worker that has joined by a token.
inline Identity JoinedWorker(Authority& authority, const std::string& name) {
  const std::string key = NewKey().value();
  const JoinToken token = authority.NewToken(name, 3600).value();
  Identity identity = authority.Redeem({token.secret, name, "", NewRequest(key).value()}).value();
  identity.key_pem = key;
  return identity;
}

}  // namespace runnel
