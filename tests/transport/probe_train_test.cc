// What a train of pieces says of the way that it came.

#include "proto/transport/control/probe_train.h"

#include <algorithm>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace runnel::probe_train_test {
namespace {

constexpr int64_t kMs = 1'000'000;

// The train over a way of so many bytes a millisecond, behind a token bucket that lets the first
// bytes pass at once.
WayMeasured Receive(int64_t bytes, int64_t bytes_per_ms, int64_t bucket_bytes) {
  ProbeReceiver receiver;
  int64_t sent = 0;
  const std::vector<ProbePiece> train = MakeProbeTrain(bytes);
  for (size_t i = 0; i < train.size(); ++i) {
    ProbePiece piece = train[i];
    sent += static_cast<int64_t>(piece.padding.size());
    piece.arrived_ns = 7 + std::max<int64_t>(sent - bucket_bytes, 0) * kMs / bytes_per_ms;
    EXPECT_EQ(receiver.Add(piece), i + 1 == train.size());
  }
  return receiver.measured();
}

TEST(ProbeTrain, TellsTheRateOfTheWay) {
  EXPECT_NEAR(Receive(64 * 1024, 125, 0).bytes_per_second, 125e3, 1e3);
  EXPECT_NEAR(Receive(512 * 1024, 2500, 0).bytes_per_second, 2.5e6, 2.5e4);
}

TEST(ProbeTrain, WhatABucketLetsPassDoesNotCount) {
  EXPECT_NEAR(Receive(64 * 1024, 31, 32 * 1024).bytes_per_second, 31e3, 1e3);
  EXPECT_NEAR(Receive(64 * 1024, 125, 32 * 1024).bytes_per_second, 125e3, 2e3);
  EXPECT_NEAR(Receive(64 * 1024, 250, 30 * 1024).bytes_per_second, 250e3, 5e3);
}

TEST(ProbeTrain, PiecesThatComeAllAtOnceHaveNoRate) {
  EXPECT_EQ(Receive(64 * 1024, 125, 64 * 1024).ns, 0);
  EXPECT_EQ(Receive(64 * 1024, 125, 64 * 1024).bytes_per_second, 0);
}

TEST(ProbeTrain, ATrainThatLacksPiecesCountsForNothingAndTheNextOneCounts) {
  ProbeReceiver receiver;
  std::vector<ProbePiece> train = MakeProbeTrain(64 * 1024);
  EXPECT_FALSE(receiver.Add(train[3])) << "no beginning";
  EXPECT_FALSE(receiver.Add(train[0]));
  EXPECT_FALSE(receiver.Add(train[2])) << "one is missing";
  for (size_t i = 3; i < train.size(); ++i) EXPECT_FALSE(receiver.Add(train[i]));
  for (size_t i = 0; i < train.size(); ++i) {
    train[i].arrived_ns = static_cast<int64_t>(i) * 32 * kMs;
    EXPECT_EQ(receiver.Add(train[i]), i + 1 == train.size());
  }
  EXPECT_NEAR(receiver.measured().bytes_per_second, 128e3, 2e3);
}

}  // namespace
}  // namespace runnel::probe_train_test
