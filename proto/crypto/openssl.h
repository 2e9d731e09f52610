#pragma once

// OpenSSL's objects with owners, and its errors as statuses. Included by proto/crypto only.

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace runnel {

template <typename T, void (*kFree)(T*)>
struct OpenSslFree {
  void operator()(T* object) const { kFree(object); }
};

inline void FreeBio(BIO* bio) { BIO_free_all(bio); }

using OwnedBio = std::unique_ptr<BIO, OpenSslFree<BIO, FreeBio>>;
using OwnedKey = std::unique_ptr<EVP_PKEY, OpenSslFree<EVP_PKEY, EVP_PKEY_free>>;
using OwnedCertificate = std::unique_ptr<X509, OpenSslFree<X509, X509_free>>;
using OwnedRequest = std::unique_ptr<X509_REQ, OpenSslFree<X509_REQ, X509_REQ_free>>;
using OwnedExtension =
    std::unique_ptr<X509_EXTENSION, OpenSslFree<X509_EXTENSION, X509_EXTENSION_free>>;
using OwnedStore = std::unique_ptr<X509_STORE, OpenSslFree<X509_STORE, X509_STORE_free>>;
using OwnedStoreContext =
    std::unique_ptr<X509_STORE_CTX, OpenSslFree<X509_STORE_CTX, X509_STORE_CTX_free>>;
using OwnedSslContext = std::unique_ptr<SSL_CTX, OpenSslFree<SSL_CTX, SSL_CTX_free>>;
using OwnedSsl = std::unique_ptr<SSL, OpenSslFree<SSL, SSL_free>>;

// "ACTION: what OpenSSL says"; empties the thread's queue of errors.
inline absl::Status OpenSslError(absl::string_view action) {
  const unsigned long code = ERR_get_error();  // NOLINT(runtime/int): OpenSSL's type
  ERR_clear_error();
  char text[256] = "";
  ERR_error_string_n(code, text, sizeof(text));
  return absl::InternalError(absl::StrCat(action, ": ", code == 0 ? "OpenSSL failed" : text));
}

// Reads from `pem`, which outlives it.
inline OwnedBio ReadOnlyBio(absl::string_view pem) {
  return OwnedBio(BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())));
}

// The text written into a memory BIO.
inline std::string TextOf(BIO* bio) {
  char* data = nullptr;
  const long size = BIO_get_mem_data(bio, &data);  // NOLINT(runtime/int): OpenSSL's type
  return size > 0 ? std::string(data, static_cast<size_t>(size)) : std::string();
}

}  // namespace runnel
