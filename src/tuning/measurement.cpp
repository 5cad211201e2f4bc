#include "tuning/measurement.h"

#include <array>
#include <cmath>
#include <ctime>

#include "base/error.h"
#include "fusion/legality.h"

namespace seqfuse::tuning {
namespace {

constexpr std::array<const char*, 4> kStatusNames{"ok", "wrong", "failed", "timeout"};

void check_time(const Measurement& measurement) {
  const auto& time = measurement.milliseconds;
  const bool ok = measurement.status == Status::ok;
  SEQFUSE_CHECK(time.has_value() == ok, "measurement: status {} {} a time; expected {}",
                name_of(measurement.status), time ? "with" : "without", ok ? "one" : "none");
  SEQFUSE_CHECK(!time || (std::isfinite(*time) && *time > 0),
                "measurement: the time is {} ms; expected a finite number above 0",
                time.value_or(0));
  const auto& predicted = measurement.predicted;
  SEQFUSE_CHECK(!predicted || (std::isfinite(*predicted) && *predicted > 0),
                "measurement: the predicted time is {} ms; expected a finite number above 0",
                predicted.value_or(0));
}

}  // namespace

bool Setting::operator==(const Setting& other) const {
  return model == other.model && hidden == other.hidden && heads == other.heads &&
         inner == other.inner && layers == other.layers && batch == other.batch &&
         seq == other.seq && mask == other.mask && dtype == other.dtype;
}

std::string printed(const Setting& setting) {
  return fmt::format("{} ({}, {}) {} {}", setting.model, setting.batch, setting.seq, setting.mask,
                     setting.dtype);
}

std::string printed(const Origin& origin) {
  return fmt::format("{}{}, seqfuse {}", origin.card,
                     origin.driver.empty() ? "" : ", driver " + origin.driver, origin.version);
}

const char* name_of(Status status) {
  return kStatusNames[static_cast<size_t>(status)];
}

std::optional<Status> status_of_name(std::string_view name) {
  for (size_t i = 0; i < kStatusNames.size(); ++i) {
    if (name == kStatusNames[i]) return static_cast<Status>(i);
  }
  return std::nullopt;
}

std::string now_as_date() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  gmtime_r(&now, &parts);
  std::array<char, 32> text{};
  std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text.data();
}

void check(const Setting& setting) {
  struct Size {
    const char* name;
    int64_t value;
  };
  for (const Size& size :
       {Size{"hidden", setting.hidden}, Size{"heads", setting.heads}, Size{"inner", setting.inner},
        Size{"layers", setting.layers}, Size{"batch", setting.batch}, Size{"seq", setting.seq}}) {
    SEQFUSE_CHECK(size.value >= 1, "measurement: {} is {}; expected 1 or more", size.name,
                  size.value);
  }
  SEQFUSE_CHECK(setting.mask_density >= 0 && setting.mask_density <= 1,
                "measurement: the mask's density is {}; expected 0 to 1", setting.mask_density);
}

void check(const Measurement& measurement) {
  check(measurement.setting);
  SEQFUSE_CHECK(measurement.scheme.has_value() != measurement.segment.has_value(),
                "measurement: it has {} a scheme and a segment; expected one of them",
                measurement.scheme ? "both" : "neither");
  if (measurement.scheme) {
    const fusion::Scheme scheme = fusion::Scheme::from_number(*measurement.scheme);
    const int64_t legal = fusion::program_of(scheme).number();
    SEQFUSE_CHECK(*measurement.scheme == legal,
                  "measurement: the scheme is {}; expected its legal form, {}", *measurement.scheme,
                  legal);
  } else {
    const fusion::Segment segment = *measurement.segment;
    SEQFUSE_CHECK(
        0 <= segment.first && segment.first <= segment.last && segment.last < fusion::kOps,
        "measurement: a segment of operators {} to {}; expected 0 to {}, ascending", segment.first,
        segment.last, fusion::kOps - 1);
  }
  check_time(measurement);
  SEQFUSE_CHECK(!measurement.origin.card.empty() && !measurement.date.empty(),
                "measurement: it has no {}", measurement.date.empty() ? "date" : "card");
}

}  // namespace seqfuse::tuning
