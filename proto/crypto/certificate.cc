#include "proto/crypto/certificate.h"

#include <openssl/asn1.h>
#include <openssl/bn.h>
#include <openssl/core_names.h>
#include <openssl/ec.h>
#include <openssl/pem.h>

#include <ctime>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "proto/base/status_macros.h"
#include "proto/base/worker_name.h"
#include "proto/crypto/openssl.h"
#include "proto/crypto/sha256.h"

namespace runnel {
namespace {

constexpr char kCurve[] = "P-256";
constexpr char kOrganisation[] = "Runnel";
constexpr int kSerialBytes = 16;
constexpr struct {
  Role role;
  const char* name;
} kRoles[] = {{Role::kServer, "server"}, {Role::kWorker, "worker"}, {Role::kOperator, "operator"}};

const char* NameOf(Role role) {
  for (const auto& row : kRoles) {
    if (row.role == role) return row.name;
  }
  return "";
}

absl::StatusOr<OwnedKey> ReadKey(absl::string_view pem) {
  const OwnedBio bio = ReadOnlyBio(pem);
  OwnedKey key(PEM_read_bio_PrivateKey(bio.get(), nullptr, nullptr, nullptr));
  if (key == nullptr) return absl::InvalidArgumentError("key: is no private key");
  return key;
}

absl::StatusOr<OwnedCertificate> Read(absl::string_view pem) {
  const OwnedBio bio = ReadOnlyBio(pem);
  OwnedCertificate certificate(PEM_read_bio_X509(bio.get(), nullptr, nullptr, nullptr));
  ERR_clear_error();
  if (certificate == nullptr) return absl::InvalidArgumentError("certificate: is none");
  return certificate;
}

std::string ToPem(X509* certificate) {
  const OwnedBio bio(BIO_new(BIO_s_mem()));
  PEM_write_bio_X509(bio.get(), certificate);
  return TextOf(bio.get());
}

bool AddEntry(X509_NAME* name, int nid, absl::string_view value) {
  return X509_NAME_add_entry_by_NID(name, nid, MBSTRING_UTF8,
                                    reinterpret_cast<const unsigned char*>(value.data()),
                                    static_cast<int>(value.size()), -1, 0) == 1;
}

bool AddExtension(X509* certificate, X509* issuer, int nid, const std::string& value) {
  X509V3_CTX context;
  X509V3_set_ctx(&context, issuer, certificate, nullptr, nullptr, 0);
  const OwnedExtension extension(X509V3_EXT_conf_nid(nullptr, &context, nid, value.c_str()));
  return extension != nullptr && X509_add_ext(certificate, extension.get(), -1) == 1;
}

// Empty, with a serial number nobody can guess, within these times.
absl::StatusOr<OwnedCertificate> Blank(int64_t not_before_s, int64_t not_after_s) {
  OwnedCertificate certificate(X509_new());
  std::string serial = RandomBytes(kSerialBytes);
  serial[0] = static_cast<char>((serial[0] & 0x3F) | 0x40);  // positive, always of one length
  BIGNUM* number =
      BN_bin2bn(reinterpret_cast<const unsigned char*>(serial.data()), kSerialBytes, nullptr);
  const bool made =
      certificate != nullptr && number != nullptr &&
      X509_set_version(certificate.get(), X509_VERSION_3) == 1 &&
      BN_to_ASN1_INTEGER(number, X509_get_serialNumber(certificate.get())) != nullptr &&
      ASN1_TIME_set(X509_getm_notBefore(certificate.get()), not_before_s) != nullptr &&
      ASN1_TIME_set(X509_getm_notAfter(certificate.get()), not_after_s) != nullptr;
  BN_free(number);
  if (!made) return OpenSslError("certificate");
  return certificate;
}

std::string EntryOf(const X509* certificate, int nid) {
  const X509_NAME* name = X509_get_subject_name(certificate);
  const int at = X509_NAME_get_index_by_NID(name, nid, -1);
  if (at < 0 || X509_NAME_get_index_by_NID(name, nid, at) >= 0) return "";  // none, or several
  unsigned char* text = nullptr;
  const int size =
      ASN1_STRING_to_UTF8(&text, X509_NAME_ENTRY_get_data(X509_NAME_get_entry(name, at)));
  if (size < 0) return "";
  std::string value(reinterpret_cast<char*>(text), static_cast<size_t>(size));
  OPENSSL_free(text);
  return value;
}

absl::StatusOr<int64_t> SecondsOf(const ASN1_TIME* time) {
  std::tm parts = {};
  if (ASN1_TIME_to_tm(time, &parts) != 1)
    return absl::InvalidArgumentError("certificate: has no readable time");
  return static_cast<int64_t>(timegm(&parts));
}

std::string SerialOf(const X509* certificate) {
  BIGNUM* number = ASN1_INTEGER_to_BN(X509_get0_serialNumber(certificate), nullptr);
  char* digits = BN_bn2hex(number);
  std::string serial = digits == nullptr ? "" : digits;
  OPENSSL_free(digits);
  BN_free(number);
  return serial;
}

absl::StatusOr<OwnedRequest> ReadRequest(absl::string_view pem) {
  const OwnedBio bio = ReadOnlyBio(pem);
  OwnedRequest request(PEM_read_bio_X509_REQ(bio.get(), nullptr, nullptr, nullptr));
  ERR_clear_error();
  if (request == nullptr) return absl::InvalidArgumentError("request: is no certificate request");
  EVP_PKEY* const key = X509_REQ_get0_pubkey(request.get());
  char curve[32] = "";
  size_t size = 0;
  const bool is_p256 = key != nullptr && EVP_PKEY_get_base_id(key) == EVP_PKEY_EC &&
                       EVP_PKEY_get_utf8_string_param(key, OSSL_PKEY_PARAM_GROUP_NAME, curve,
                                                      sizeof(curve), &size) == 1 &&
                       OBJ_sn2nid(curve) == NID_X9_62_prime256v1;
  if (!is_p256) return absl::InvalidArgumentError("request: its key is not one on P-256");
  const bool is_signed = X509_REQ_verify(request.get(), key) == 1;
  ERR_clear_error();
  if (!is_signed) return absl::InvalidArgumentError("request: is not signed with its key");
  return request;
}

}  // namespace

std::string Subject::ToString() const { return absl::StrCat(NameOf(role), "/", name); }
std::string Subject::HostName() const { return absl::StrCat(name, ".", NameOf(role), ".runnel"); }

absl::StatusOr<Subject> ParseSubject(absl::string_view text) {
  const std::vector<std::string> parts = absl::StrSplit(text, absl::MaxSplits('/', 1));
  for (const auto& row : kRoles) {
    if (parts.size() != 2 || parts[0] != row.name) continue;
    RUNNEL_RETURN_IF_ERROR(CheckWorkerName("subject", parts[1]));
    return Subject{row.role, parts[1]};
  }
  return absl::InvalidArgumentError("subject: is not ROLE/NAME");
}

absl::StatusOr<std::string> NewKey() {
  const OwnedKey key(EVP_EC_gen(kCurve));
  const OwnedBio bio(BIO_new(BIO_s_mem()));
  if (key == nullptr || PEM_write_bio_PKCS8PrivateKey(bio.get(), key.get(), nullptr, nullptr, 0,
                                                      nullptr, nullptr) != 1) {
    return OpenSslError("new key");
  }
  return TextOf(bio.get());
}

absl::StatusOr<Signer> NewSigner(int64_t not_before_s, int64_t not_after_s) {
  Signer signer;
  RUNNEL_ASSIGN_OR_RETURN(signer.key_pem, NewKey());
  RUNNEL_ASSIGN_OR_RETURN(const OwnedKey key, ReadKey(signer.key_pem));
  RUNNEL_ASSIGN_OR_RETURN(const OwnedCertificate certificate, Blank(not_before_s, not_after_s));
  X509* const made = certificate.get();
  X509_NAME* const name = X509_get_subject_name(made);
  const bool is_made =
      AddEntry(name, NID_organizationName, kOrganisation) &&
      AddEntry(name, NID_commonName, "cluster") && X509_set_issuer_name(made, name) == 1 &&
      X509_set_pubkey(made, key.get()) == 1 &&
      AddExtension(made, made, NID_basic_constraints, "critical,CA:TRUE,pathlen:0") &&
      AddExtension(made, made, NID_key_usage, "critical,keyCertSign") &&
      AddExtension(made, made, NID_subject_key_identifier, "hash") &&
      X509_sign(made, key.get(), EVP_sha256()) > 0;
  if (!is_made) return OpenSslError("new signing certificate");
  signer.certificate_pem = ToPem(made);
  return signer;
}

absl::StatusOr<std::string> NewRequest(absl::string_view key_pem) {
  RUNNEL_ASSIGN_OR_RETURN(const OwnedKey key, ReadKey(key_pem));
  const OwnedRequest request(X509_REQ_new());
  const OwnedBio bio(BIO_new(BIO_s_mem()));
  const bool made = request != nullptr && X509_REQ_set_pubkey(request.get(), key.get()) == 1 &&
                    X509_REQ_sign(request.get(), key.get(), EVP_sha256()) > 0 &&
                    PEM_write_bio_X509_REQ(bio.get(), request.get()) == 1;
  if (!made) return OpenSslError("new request");
  return TextOf(bio.get());
}

absl::StatusOr<std::string> Issue(const Signer& signer, absl::string_view request_pem,
                                  const Subject& subject, int64_t not_before_s,
                                  int64_t not_after_s) {
  RUNNEL_ASSIGN_OR_RETURN(const OwnedRequest request, ReadRequest(request_pem));
  RUNNEL_ASSIGN_OR_RETURN(const OwnedCertificate issuer, Read(signer.certificate_pem));
  RUNNEL_ASSIGN_OR_RETURN(const OwnedKey signing_key, ReadKey(signer.key_pem));
  RUNNEL_ASSIGN_OR_RETURN(const OwnedCertificate certificate, Blank(not_before_s, not_after_s));
  X509* const made = certificate.get();
  X509_NAME* const name = X509_get_subject_name(made);
  const bool is_made =
      AddEntry(name, NID_organizationName, kOrganisation) &&
      AddEntry(name, NID_organizationalUnitName, NameOf(subject.role)) &&
      AddEntry(name, NID_commonName, subject.name) &&
      X509_set_issuer_name(made, X509_get_subject_name(issuer.get())) == 1 &&
      X509_set_pubkey(made, X509_REQ_get0_pubkey(request.get())) == 1 &&
      AddExtension(made, issuer.get(), NID_basic_constraints, "critical,CA:FALSE") &&
      AddExtension(made, issuer.get(), NID_key_usage, "critical,digitalSignature") &&
      // A worker dials and is dialled.
      AddExtension(made, issuer.get(), NID_ext_key_usage,
                   subject.role == Role::kOperator ? "clientAuth" : "serverAuth,clientAuth") &&
      AddExtension(made, issuer.get(), NID_subject_key_identifier, "hash") &&
      AddExtension(made, issuer.get(), NID_authority_key_identifier, "keyid:always") &&
      AddExtension(made, issuer.get(), NID_subject_alt_name,
                   absl::StrCat("DNS:", subject.HostName())) &&
      X509_sign(made, signing_key.get(), EVP_sha256()) > 0;
  if (!is_made) return OpenSslError("issue a certificate");
  return ToPem(made);
}

absl::StatusOr<CertificateInfo> ReadCertificate(absl::string_view certificate_pem) {
  RUNNEL_ASSIGN_OR_RETURN(const OwnedCertificate certificate, Read(certificate_pem));
  CertificateInfo info;
  RUNNEL_ASSIGN_OR_RETURN(info.subject, ParseSubject(absl::StrCat(
                                            EntryOf(certificate.get(), NID_organizationalUnitName),
                                            "/", EntryOf(certificate.get(), NID_commonName))));
  info.serial = SerialOf(certificate.get());
  RUNNEL_ASSIGN_OR_RETURN(info.not_before_s, SecondsOf(X509_get0_notBefore(certificate.get())));
  RUNNEL_ASSIGN_OR_RETURN(info.not_after_s, SecondsOf(X509_get0_notAfter(certificate.get())));
  return info;
}

absl::StatusOr<std::string> KeyHash(absl::string_view certificate_pem) {
  RUNNEL_ASSIGN_OR_RETURN(const OwnedCertificate certificate, Read(certificate_pem));
  unsigned char* der = nullptr;
  const int size = i2d_X509_PUBKEY(X509_get_X509_PUBKEY(certificate.get()), &der);
  if (size < 0) return OpenSslError("hash of a key");
  std::string hash = Sha256({reinterpret_cast<char*>(der), static_cast<size_t>(size)});
  OPENSSL_free(der);
  return hash;
}

namespace {

// Day and time in UTC.
std::string DateOf(int64_t unix_s) {
  const time_t seconds = unix_s;
  struct tm parts = {};
  char text[32] = {};
  gmtime_r(&seconds, &parts);
  return strftime(text, sizeof(text), "%Y-%m-%d %H:%M UTC", &parts) > 0 ? text : "another age";
}

}  // namespace

absl::Status VerifySignature(absl::string_view certificate_pem, absl::string_view authority_pem,
                             int64_t now_s) {
  RUNNEL_ASSIGN_OR_RETURN(const OwnedCertificate certificate, Read(certificate_pem));
  RUNNEL_ASSIGN_OR_RETURN(const OwnedCertificate authority, Read(authority_pem));
  const OwnedStore store(X509_STORE_new());
  const OwnedStoreContext context(X509_STORE_CTX_new());
  if (store == nullptr || context == nullptr ||
      X509_STORE_add_cert(store.get(), authority.get()) != 1 ||
      X509_STORE_CTX_init(context.get(), store.get(), certificate.get(), nullptr) != 1) {
    return OpenSslError("check a certificate");
  }
  X509_STORE_CTX_set_time(context.get(), 0, now_s);
  if (X509_verify_cert(context.get()) == 1) return absl::OkStatus();
  ERR_clear_error();
  const int error = X509_STORE_CTX_get_error(context.get());
  const bool is_of_time =
      error == X509_V_ERR_CERT_NOT_YET_VALID || error == X509_V_ERR_CERT_HAS_EXPIRED;
  return absl::PermissionDeniedError(absl::StrCat(
      "certificate: ", X509_verify_cert_error_string(error),
      is_of_time
          ? absl::StrCat("; the clock here says ", DateOf(now_s), ": set it if that is wrong")
          : ""));
}

}  // namespace runnel
