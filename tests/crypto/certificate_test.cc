#include "proto/crypto/certificate.h"

#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509.h>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/crypto/openssl.h"
#include "proto/crypto/sha256.h"
#include "tests/crypto/fake_time.h"

namespace runnel::certificate_test {
namespace {

using ::testing::HasSubstr;

std::string RequestFor(const std::string& key) { return NewRequest(key).value(); }

// A request with a key of a kind that we do not use.
std::string RsaRequest() {
  const OwnedKey key(EVP_RSA_gen(2048));
  const OwnedRequest request(X509_REQ_new());
  X509_REQ_set_pubkey(request.get(), key.get());
  X509_REQ_sign(request.get(), key.get(), EVP_sha256());
  const OwnedBio bio(BIO_new(BIO_s_mem()));
  PEM_write_bio_X509_REQ(bio.get(), request.get());
  return TextOf(bio.get());
}

class CertificateTest : public testing::Test {
 protected:
  const Signer signer_ = NewSigner(kStart, kStart + 10 * kDay).value();
  const std::string request_ = RequestFor(NewKey().value());
};

TEST_F(CertificateTest, SaysWhoAndUntilWhen) {
  const Subject subject{Role::kWorker, "pi-1"};
  const auto pem = Issue(signer_, request_, subject, kStart, kStart + kDay);
  ASSERT_TRUE(pem.ok()) << pem.status();
  const auto info = ReadCertificate(*pem);
  ASSERT_TRUE(info.ok()) << info.status();
  EXPECT_EQ(info->subject, subject);
  EXPECT_EQ(info->not_before_s, kStart);
  EXPECT_EQ(info->not_after_s, kStart + kDay);
  EXPECT_EQ(info->serial.size(), 32u);
  EXPECT_EQ(subject.ToString(), "worker/pi-1");
  EXPECT_EQ(subject.HostName(), "pi-1.worker.runnel");
  EXPECT_EQ(ParseSubject("worker/pi-1").value(), subject);
}

TEST_F(CertificateTest, ANameOfFullLengthFits) {
  const Subject subject{Role::kOperator, std::string(64, 'x')};
  const auto pem = Issue(signer_, request_, subject, kStart, kStart + kDay);
  ASSERT_TRUE(pem.ok()) << pem.status();
  EXPECT_EQ(ReadCertificate(*pem)->subject, subject);
}

TEST_F(CertificateTest, HoldsWithinItsTimesAndFromItsSigner) {
  const std::string pem = Issue(signer_, request_, CentralSubject(), kStart, kStart + kDay).value();
  EXPECT_TRUE(VerifySignature(pem, signer_.certificate_pem, kStart + 1).ok());
  const auto late = VerifySignature(pem, signer_.certificate_pem, kStart + 2 * kDay);
  EXPECT_TRUE(absl::IsPermissionDenied(late)) << late;
  EXPECT_THAT(std::string(late.message()), HasSubstr("expired"));
  EXPECT_FALSE(VerifySignature(pem, signer_.certificate_pem, kStart - 1).ok());
  const Signer other = NewSigner(kStart, kStart + kDay).value();
  EXPECT_TRUE(absl::IsPermissionDenied(VerifySignature(pem, other.certificate_pem, kStart + 1)));
}

// Whoever has a certificate cannot make others.
TEST_F(CertificateTest, ACertificateSignsNoCertificate) {
  const std::string key = NewKey().value();
  const Signer worker{
      Issue(signer_, RequestFor(key), {Role::kWorker, "pi-1"}, kStart, kStart + kDay).value(), key};
  const std::string forged =
      Issue(worker, request_, CentralSubject(), kStart, kStart + kDay).value();
  EXPECT_FALSE(VerifySignature(forged, signer_.certificate_pem, kStart + 1).ok());
  EXPECT_FALSE(VerifySignature(forged, worker.certificate_pem, kStart + 1).ok());
}

TEST_F(CertificateTest, RequestsAreChecked) {
  const Subject subject{Role::kWorker, "pi-1"};
  const auto issue = [&](const std::string& request) {
    return Issue(signer_, request, subject, kStart, kStart + kDay).status();
  };
  EXPECT_TRUE(absl::IsInvalidArgument(issue("")));
  EXPECT_TRUE(absl::IsInvalidArgument(issue("-----BEGIN CERTIFICATE REQUEST-----\nx\n")));
  EXPECT_TRUE(absl::IsInvalidArgument(issue(RsaRequest())));
  EXPECT_TRUE(absl::IsInvalidArgument(issue(signer_.certificate_pem)));
  // The signature of another key's request.
  const OwnedBio mine = ReadOnlyBio(request_);
  const OwnedRequest request(PEM_read_bio_X509_REQ(mine.get(), nullptr, nullptr, nullptr));
  const std::string other_key = NewKey().value();
  const OwnedBio key_text = ReadOnlyBio(other_key);
  const OwnedKey key(PEM_read_bio_PrivateKey(key_text.get(), nullptr, nullptr, nullptr));
  X509_REQ_set_pubkey(request.get(), key.get());
  const OwnedBio stolen(BIO_new(BIO_s_mem()));
  PEM_write_bio_X509_REQ(stolen.get(), request.get());
  EXPECT_TRUE(absl::IsInvalidArgument(issue(TextOf(stolen.get()))));
}

TEST_F(CertificateTest, WhatIsNoneOfOursIsRefused) {
  EXPECT_TRUE(absl::IsInvalidArgument(ReadCertificate("").status()));
  // Its name says no role.
  EXPECT_TRUE(absl::IsInvalidArgument(ReadCertificate(signer_.certificate_pem).status()));
  for (const char* text : {"", "worker", "king/pi-1", "worker/", "worker/a b", "worker/a/b"})
    EXPECT_FALSE(ParseSubject(text).ok()) << text;
}

TEST(Secrets, AreDerivedAndCompared) {
  // RFC 4231, test case 2.
  EXPECT_EQ(DeriveSecret("Jefe", "what do ya want for nothing?"),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
  EXPECT_TRUE(EqualSecrets("abc", "abc"));
  EXPECT_FALSE(EqualSecrets("abc", "abd"));
  EXPECT_FALSE(EqualSecrets("abc", "abcd"));
  EXPECT_NE(RandomBytes(16), RandomBytes(16));
}

}  // namespace
}  // namespace runnel::certificate_test
