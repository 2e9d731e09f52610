#include <httplib.h>

#include <fstream>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "central/cli/display_maker.h"
#include "central/display/admin_server.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/crypto/authority.h"
#include "tests/support/scratch.h"

namespace runnel::admin_network_test {
namespace {

constexpr char kReadToken[] = "0123456789abcdef0123456789abcdef";

// A server over TLS with a cluster of its own.
struct Serving {
  ScratchDir folder;
  std::unique_ptr<Authority> authority;
  std::string refused_serial;
  std::unique_ptr<AdminServer> server;

  Serving() {
    auto made = Authority::Create(folder / "home", SystemWallClock());
    EXPECT_TRUE(made.ok()) << made.status();
    authority = *std::move(made);
    AdminCallbacks callbacks;
    callbacks.metrics_text = [] { return std::string("runnel_up 1\n"); };
    callbacks.state_json = [] { return std::string("{}"); };
    callbacks.ready = callbacks.alive = [] { return true; };
    callbacks.orders.drain = [](const std::string&) { return absl::OkStatus(); };
    callbacks.orders.pause = [](bool) { return absl::OkStatus(); };
    callbacks.orders.trace = [](int64_t) -> absl::StatusOr<std::string> { return "{}"; };
    callbacks.orders.what_if = [](const std::string&) -> absl::StatusOr<std::string> { return ""; };
    callbacks.orders.stop = [](bool) { return absl::OkStatus(); };
    callbacks.orders.replan = [] { return absl::OkStatus(); };
    const auto check = [this](const CertificateInfo& peer) {
      return peer.serial == refused_serial ? absl::PermissionDeniedError("revoked")
                                           : absl::OkStatus();
    };
    auto started = AdminServer::StartOnNetwork(
        0, {"127.0.0.1", *authority->ServerIdentity(), kReadToken, check}, callbacks);
    EXPECT_TRUE(started.ok()) << started.status();
    server = *std::move(started);
  }

  // Without a certificate.
  std::unique_ptr<httplib::SSLClient> Client() const {
    return Trusting(std::make_unique<httplib::SSLClient>("127.0.0.1", server->port()));
  }
  // Shows the certificate of an identity.
  std::unique_ptr<httplib::SSLClient> ClientOf(const Identity& identity) const {
    const std::string certificate = folder / "client.pem", key = folder / "client.key";
    std::ofstream(certificate) << identity.certificate_pem;
    std::ofstream(key) << identity.key_pem;
    return Trusting(
        std::make_unique<httplib::SSLClient>("127.0.0.1", server->port(), certificate, key));
  }

 private:
  static std::unique_ptr<httplib::SSLClient> Trusting(std::unique_ptr<httplib::SSLClient> client) {
    // The certificate has central's name and no address; https_test.py compares it.
    client->enable_server_certificate_verification(false);
    return client;
  }
};

httplib::Headers Bearer(const std::string& token) { return {{"Authorization", "Bearer " + token}}; }

int StatusOf(const httplib::Result& result) { return result ? result->status : -1; }

TEST(AdminNetwork, WithoutATokenNobodyReads) {
  const Serving serving;
  for (const char* path : {"/state", "/metrics", "/trace", "/nothing"})
    EXPECT_EQ(StatusOf(serving.Client()->Get(path)), 401) << path;
  for (const std::string& wrong : {std::string(), std::string("guess"), std::string(32, '0')})
    EXPECT_EQ(StatusOf(serving.Client()->Get("/metrics", Bearer(wrong))), 401) << wrong;
  for (const char* path : {"/", "/healthz", "/readyz"})
    EXPECT_EQ(StatusOf(serving.Client()->Get(path)), 200) << path;
}

TEST(AdminNetwork, TheReadTokenReadsAndGivesNoOrders) {
  const Serving serving;
  const auto metrics = serving.Client()->Get("/metrics", Bearer(kReadToken));
  ASSERT_TRUE(metrics);
  EXPECT_EQ(metrics->body, "runnel_up 1\n");
  EXPECT_EQ(StatusOf(serving.Client()->Get("/state", Bearer(kReadToken))), 200);
  EXPECT_EQ(StatusOf(serving.Client()->Get("/trace", Bearer(kReadToken))), 200);
  EXPECT_EQ(StatusOf(serving.Client()->Post("/orders/pause", Bearer(kReadToken), "", "text/plain")),
            403);
  EXPECT_EQ(StatusOf(serving.Client()->Post("/orders/pause", {}, "", "text/plain")), 401);
}

TEST(AdminNetwork, TheOrderTokenDoesBoth) {
  const Serving serving;
  const httplib::Headers order = {{"X-Runnel-Token", serving.server->token()}};
  EXPECT_EQ(StatusOf(serving.Client()->Get("/state", Bearer(serving.server->token()))), 200);
  EXPECT_EQ(StatusOf(serving.Client()->Post("/orders/pause", order, "", "text/plain")), 204);
}

TEST(AdminNetwork, AnOperatorsCertificateDoesBothAndAWorkersNeither) {
  Serving serving;
  const auto operators = ReadIdentity(serving.authority->operator_folder());
  const auto worker = serving.authority->IssueLocal("pi-1");
  ASSERT_TRUE(operators.ok() && worker.ok());
  EXPECT_EQ(StatusOf(serving.ClientOf(*operators)->Get("/state")), 200);
  EXPECT_EQ(StatusOf(serving.ClientOf(*operators)->Post("/orders/pause", "", "text/plain")), 204);
  EXPECT_EQ(StatusOf(serving.ClientOf(*worker)->Get("/state")), 401);
  serving.refused_serial = ReadCertificate(operators->certificate_pem)->serial;
  EXPECT_EQ(StatusOf(serving.ClientOf(*operators)->Get("/state")), 401) << "revoked";
}

TEST(AdminNetwork, AnotherClustersCertificateGetsNoConnection) {
  const Serving serving;
  const Serving other;
  const auto stranger = ReadIdentity(other.authority->operator_folder());
  ASSERT_TRUE(stranger.ok());
  EXPECT_EQ(StatusOf(serving.ClientOf(*stranger)->Get("/healthz")), -1);
}

TEST(AdminNetwork, APageOfAnotherSiteGetsNothing) {
  const Serving serving;
  httplib::Headers headers = Bearer(kReadToken);
  headers.emplace("Origin", "https://evil.example");
  EXPECT_EQ(StatusOf(serving.Client()->Get("/state", headers)), 403);
  headers = Bearer(kReadToken);
  headers.emplace("Origin", absl::StrCat("https://127.0.0.1:", serving.server->port()));
  EXPECT_EQ(StatusOf(serving.Client()->Get("/state", headers)), 200);
}

TEST(AdminNetwork, PlainTextAndOldTlsGetNothing) {
  const Serving serving;
  EXPECT_EQ(StatusOf(httplib::Client("127.0.0.1", serving.server->port()).Get("/healthz")), -1);
  const auto old = serving.Client();
  SSL_CTX_set_max_proto_version(old->ssl_context(), TLS1_2_VERSION);
  EXPECT_EQ(StatusOf(old->Get("/healthz")), -1);
}

TEST(AdminNetwork, WhatCannotBeServed) {
  const Serving serving;
  const Identity identity = *serving.authority->ServerIdentity();
  EXPECT_EQ(AdminServer::StartOnNetwork(0, {"127.0.0.1", identity, "", {}}, {}).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(AdminServer::StartOnNetwork(0, {"192.0.2.1", identity, "t", {}}, {}).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(AdminServer::StartOnNetwork(0, {"127.0.0.1", {}, "t", {}}, {}).status().code(),
            absl::StatusCode::kInternal);
}

TEST(PageToken, IsMadeOnceAndReadFromThenOn) {
  const ScratchDir folder;
  const std::string home = folder / "home";
  ASSERT_TRUE(MakePrivateFolder(home).ok());
  const auto first = PageToken(home);
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_EQ(first->size(), 32u);
  EXPECT_EQ(*PageToken(home), *first);
  std::ofstream(home + "/page_token") << "  0123456789abcdef-0123456789ABCDEF-x\n";
  EXPECT_EQ(*PageToken(home), "0123456789abcdef-0123456789ABCDEF-x");
  for (const char* bad : {"", "short", "0123456789abcdef 0123456789abcdef0123456789"}) {
    std::ofstream(home + "/page_token") << bad;
    EXPECT_EQ(PageToken(home).status().code(), absl::StatusCode::kInvalidArgument) << bad;
  }
}

}  // namespace
}  // namespace runnel::admin_network_test
