#include "proto/crypto/sha256.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>

#include <cstdlib>

#include "absl/strings/escaping.h"

namespace runnel {

struct Sha256Hasher::Impl {
  EVP_MD_CTX* context = EVP_MD_CTX_new();
  ~Impl() { EVP_MD_CTX_free(context); }
};

Sha256Hasher::Sha256Hasher() : impl_(std::make_unique<Impl>()) {
  EVP_DigestInit_ex(impl_->context, EVP_sha256(), nullptr);
}
Sha256Hasher::~Sha256Hasher() = default;

void Sha256Hasher::Add(absl::string_view bytes) {
  EVP_DigestUpdate(impl_->context, bytes.data(), bytes.size());
}

std::string Sha256Hasher::Digest() {
  std::string digest(EVP_MAX_MD_SIZE, '\0');
  unsigned int size = 0;
  EVP_DigestFinal_ex(impl_->context, reinterpret_cast<unsigned char*>(digest.data()), &size);
  digest.resize(size);
  return digest;
}

std::string Sha256(absl::string_view bytes) {
  Sha256Hasher sha;
  sha.Add(bytes);
  return sha.Digest();
}

std::string Sha256Hex(absl::string_view bytes) { return absl::BytesToHexString(Sha256(bytes)); }

std::string DeriveSecret(absl::string_view secret, absl::string_view purpose) {
  std::string digest(EVP_MAX_MD_SIZE, '\0');
  unsigned int size = 0;
  HMAC(EVP_sha256(), secret.data(), static_cast<int>(secret.size()),
       reinterpret_cast<const unsigned char*>(purpose.data()), purpose.size(),
       reinterpret_cast<unsigned char*>(digest.data()), &size);
  digest.resize(size);
  return absl::BytesToHexString(digest);
}

bool EqualSecrets(absl::string_view a, absl::string_view b) {
  return a.size() == b.size() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

std::string RandomBytes(size_t count) {
  std::string bytes(count, '\0');
  // Without random numbers every secret could be guessed.
  if (RAND_bytes(reinterpret_cast<unsigned char*>(bytes.data()), static_cast<int>(count)) != 1)
    std::abort();
  return bytes;
}

}  // namespace runnel
