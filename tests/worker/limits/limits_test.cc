// A worker's limits, over planted files, clocks and connections.

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <ctime>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/scratch.h"
#include "worker/limits/device_figures.h"
#include "worker/limits/device_limits.h"
#include "worker/limits/device_readings.h"
#include "worker/limits/limit_rows.h"
#include "worker/limits/network_bytes.h"

namespace runnel::limits_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// A /sys of a test's own.
struct Planted {
  ScratchDir root;

  void Put(const std::string& path, const std::string& content) const {
    const std::filesystem::path file = root / ("sys/class/" + path);
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << content << "\n";
  }
  void PutBattery(int percent, const std::string& status) const {
    Put("power_supply/BAT0/type", "Battery");
    Put("power_supply/BAT0/capacity", std::to_string(percent));
    Put("power_supply/BAT0/status", status);
  }
};

TEST(DeviceReadings, ABoardShowsNothing) {
  const Planted planted;
  const DeviceReadings readings = ReadDevice(planted.root.path());
  EXPECT_FALSE(readings.battery_percent.has_value());
  EXPECT_FALSE(readings.celsius.has_value());
}

TEST(DeviceReadings, BatteryAndHottestZone) {
  const Planted planted;
  planted.PutBattery(37, "Discharging");
  planted.Put("power_supply/mouse/type", "Battery");
  planted.Put("power_supply/mouse/scope", "Device");
  planted.Put("power_supply/mouse/capacity", "99");
  planted.Put("power_supply/AC/type", "Mains");
  planted.Put("thermal/thermal_zone0/temp", "48500");
  planted.Put("thermal/thermal_zone1/temp", "61200");
  planted.Put("thermal/thermal_zone2/temp", "-274000");  // not connected
  planted.Put("thermal/cooling_device0/temp", "99000");
  const DeviceReadings readings = ReadDevice(planted.root.path());
  EXPECT_DOUBLE_EQ(readings.battery_percent.value_or(0), 37);
  EXPECT_TRUE(readings.is_discharging);
  EXPECT_DOUBLE_EQ(readings.celsius.value_or(0), 61.2);
}

LimitSettings Parsed(const std::string& flag, const std::string& text) {
  LimitSettings settings;
  for (const LimitRow& row : LimitRows()) {
    if (row.flag != flag) continue;
    EXPECT_TRUE(row.parse(text, settings).ok()) << flag << " " << text;
  }
  return settings;
}

struct Limited {
  Planted planted;
  int64_t passed = 0;
  std::time_t now_s = 0;
  DeviceLimits limits;

  explicit Limited(const LimitSettings& settings, const std::string& file = "")
      : limits(settings,
               {[this] { return ReadDevice(planted.root.path()); },
                [this] { return std::exchange(passed, 0); }, [this] { return now_s; }, file}) {
    SetClock(27, 12, 0);
  }
  void SetClock(int day, int hour, int minute) {
    std::tm local = {};
    local.tm_year = 126;
    local.tm_mon = 10;
    local.tm_mday = day;
    local.tm_hour = hour;
    local.tm_min = minute;
    local.tm_isdst = -1;
    now_s = mktime(&local);
  }
};

TEST(Limits, NoneHoldNobody) {
  Limited limited({});
  limited.planted.PutBattery(1, "Discharging");
  EXPECT_EQ(limited.limits.Reason(), "");
  EXPECT_TRUE(limited.limits.empty());
}

TEST(Limits, ABatteryThatIsLowUntilItHasAMargin) {
  Limited limited(Parsed("--battery-floor", "20"));
  EXPECT_EQ(limited.limits.Reason(), "") << "no battery";
  limited.planted.PutBattery(20, "Discharging");
  EXPECT_EQ(limited.limits.Reason(), "");
  limited.planted.PutBattery(19, "Discharging");
  EXPECT_EQ(limited.limits.Reason(),
            "the battery is at 19 %; from 25 % on, or when it is charged, it takes part again "
            "(--battery-floor)");
  limited.planted.PutBattery(24, "Discharging");
  EXPECT_NE(limited.limits.Reason(), "") << "it would come and go";
  limited.planted.PutBattery(25, "Discharging");
  EXPECT_EQ(limited.limits.Reason(), "");
  limited.planted.PutBattery(3, "Charging");
  EXPECT_EQ(limited.limits.Reason(), "");
}

TEST(Limits, HeatUntilItHasAMargin) {
  Limited limited(Parsed("--max-celsius", "70"));
  EXPECT_TRUE(absl::IsFailedPrecondition(limited.limits.Check())) << "it cannot be kept";
  limited.planted.Put("thermal/thermal_zone0/temp", "70000");
  EXPECT_TRUE(limited.limits.Check().ok());
  EXPECT_EQ(limited.limits.Reason(), "");
  limited.planted.Put("thermal/thermal_zone0/temp", "70500");
  EXPECT_THAT(limited.limits.Reason(),
              AllOf(HasSubstr("at 65 or less"), HasSubstr("--max-celsius")));
  limited.planted.Put("thermal/thermal_zone0/temp", "66000");
  EXPECT_NE(limited.limits.Reason(), "");
  limited.planted.Put("thermal/thermal_zone0/temp", "65000");
  EXPECT_EQ(limited.limits.Reason(), "");
}

TEST(Limits, HoursOverMidnight) {
  Limited limited(Parsed("--hours", "22-7:30"));
  EXPECT_EQ(limited.limits.Reason(), "it is 12:00; at 22:00 it takes part again (--hours)");
  const struct {
    int hour, minute;
    bool may;
  } rows[] = {{21, 59, false}, {22, 0, true}, {0, 0, true}, {7, 29, true}, {7, 30, false}};
  for (const auto& row : rows) {
    limited.SetClock(27, row.hour, row.minute);
    EXPECT_EQ(limited.limits.Reason().empty(), row.may) << row.hour << ":" << row.minute;
  }
  EXPECT_EQ(limited.limits.Text(), "22:00 to 7:30");
}

TEST(Limits, DataOfADayAlsoOverAnotherStart) {
  const ScratchDir folder;
  const std::string file = folder / "data_today";
  {
    Limited limited(Parsed("--data-mb-per-day", "10"), file);
    limited.passed = 6'000'000;
    EXPECT_EQ(limited.limits.Reason(), "");
  }
  Limited limited(Parsed("--data-mb-per-day", "10"), file);
  EXPECT_EQ(limited.limits.Reason(), "");
  limited.passed = 5'000'000;
  EXPECT_EQ(
      limited.limits.Reason(),
      "11 MB were sent and received today; at midnight it takes part again (--data-mb-per-day)");
  limited.SetClock(28, 0, 0);
  EXPECT_EQ(limited.limits.Reason(), "") << "another day";
}

TEST(Limits, TheSameDayOfAnotherYearIsAnotherDay) {
  Limited limited(Parsed("--data-mb-per-day", "10"));
  limited.passed = 11'000'000;
  EXPECT_NE(limited.limits.Reason(), "");
  std::tm local = {};
  localtime_r(&limited.now_s, &local);
  local.tm_year += 1;
  local.tm_isdst = -1;
  limited.now_s = mktime(&local);
  EXPECT_EQ(limited.limits.Reason(), "") << "the worker has run through a year, or lay in a drawer";
}

TEST(DeviceFigures, SensorsAreReadNowAndThenTheProcessEachTime) {
  const Planted planted;
  planted.PutBattery(37, "Discharging");
  planted.Put("thermal/thermal_zone0/temp", "48500");
  int64_t now_ns = 5, asked = 0;
  DeviceFigures figures({[&] {
                           ++asked;
                           return ReadDevice(planted.root.path());
                         },
                         [] { return int64_t{1'800'000'000}; }, [&] { return now_ns; }});
  Telemetry telemetry;
  figures.Fill(telemetry);
  EXPECT_DOUBLE_EQ(telemetry.celsius, 48.5);
  EXPECT_DOUBLE_EQ(telemetry.battery_charge, 0.37);
  EXPECT_EQ(telemetry.certificate_until_s, 1'800'000'000);
  EXPECT_GT(telemetry.resident_bytes, 100'000);
  EXPECT_GT(telemetry.process_ns, 0);
  planted.PutBattery(36, "Discharging");
  now_ns += DeviceFigures::kEveryNs - 1;
  figures.Fill(telemetry);
  EXPECT_EQ(asked, 1) << "a sensor may take milliseconds";
  EXPECT_DOUBLE_EQ(telemetry.battery_charge, 0.37);
  now_ns += 1;
  figures.Fill(telemetry);
  EXPECT_DOUBLE_EQ(telemetry.battery_charge, 0.36);
}

TEST(DeviceFigures, WhatADeviceDoesNotShowIsNotKnown) {
  DeviceFigures figures({[] { return DeviceReadings(); }, nullptr, [] { return int64_t{1}; }});
  Telemetry telemetry;
  figures.Fill(telemetry);
  EXPECT_EQ(telemetry.celsius, 0);
  EXPECT_EQ(telemetry.battery_charge, 0);
  EXPECT_EQ(telemetry.certificate_until_s, 0);
}

TEST(Limits, SeveralAreAllNamed) {
  LimitSettings settings = Parsed("--hours", "0-1");
  settings.least_battery_percent = 50;
  Limited limited(settings);
  limited.planted.PutBattery(10, "Discharging");
  EXPECT_THAT(limited.limits.Reason(),
              AllOf(HasSubstr("--battery-floor"), HasSubstr("; it is 12:00")));
  EXPECT_EQ(limited.limits.Text(), "battery 50 % or more, 0:00 to 1:00");
}

TEST(Limits, WhatIsNoValue) {
  const struct {
    const char *flag, *text;
  } bad[] = {{"--battery-floor", "0"},   {"--battery-floor", "101"}, {"--battery-floor", "x"},
             {"--max-celsius", "nan"},   {"--max-celsius", "10"},    {"--hours", "22"},
             {"--hours", "22-25"},       {"--hours", "7:60-8"},      {"--hours", "1-2-3"},
             {"--data-mb-per-day", "0"}, {"--data-mb-per-day", "-5"}};
  for (const auto& one : bad) {
    for (const LimitRow& row : LimitRows()) {
      LimitSettings settings;
      if (std::string(row.flag) != one.flag) continue;
      EXPECT_TRUE(absl::IsInvalidArgument(row.parse(one.text, settings)))
          << one.flag << " " << one.text;
    }
  }
}

// Both ends of a connection over loopback.
struct Connection {
  int ends[2] = {-1, -1};

  Connection() {
    const int listener = socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    EXPECT_EQ(bind(listener, reinterpret_cast<sockaddr*>(&address), size), 0);
    EXPECT_EQ(listen(listener, 1), 0);
    getsockname(listener, reinterpret_cast<sockaddr*>(&address), &size);
    ends[0] = socket(AF_INET, SOCK_STREAM, 0);
    EXPECT_EQ(connect(ends[0], reinterpret_cast<sockaddr*>(&address), size), 0);
    ends[1] = accept(listener, nullptr, nullptr);
    close(listener);
  }
  ~Connection() {
    for (const int end : ends) close(end);
  }
  // Until the other end has it all.
  void Send(size_t bytes) {
    const std::string data(bytes, 'x');
    EXPECT_EQ(write(ends[0], data.data(), bytes), static_cast<ssize_t>(bytes));
    std::string got(bytes, '\0');
    EXPECT_EQ(recv(ends[1], got.data(), bytes, MSG_WAITALL), static_cast<ssize_t>(bytes));
    // An answer, so that the first bytes are acknowledged.
    EXPECT_EQ(write(ends[1], "k", 1), 1);
    EXPECT_EQ(recv(ends[0], got.data(), 1, MSG_WAITALL), 1);
  }
};

TEST(NetworkBytes, CountsConnectionsOnce) {
  NetworkBytes bytes(/*counts_loopback=*/true);
  bytes.Take();
  Connection connection;
  connection.Send(10'000);
  const int64_t first = bytes.Take();
  EXPECT_GE(first, 2 * 10'000) << "both ends are this process";
  EXPECT_LE(first, 2 * 10'000 + 100);
  EXPECT_LE(bytes.Take(), 2) << "counted already";
  connection.Send(5'000);
  EXPECT_GE(bytes.Take(), 2 * 5'000 - 2);
}

TEST(NetworkBytes, LoopbackIsNoNetwork) {
  NetworkBytes bytes;
  bytes.Take();
  Connection connection;
  connection.Send(10'000);
  EXPECT_EQ(bytes.Take(), 0);
}

}  // namespace
}  // namespace runnel::limits_test
