// Users of synthesized KuaiRand data: the row of the feature file, and how it affects their
// behaviour.
#pragma once

#include <cstdint>
#include <string>

#include "data/synthesize/synthesize_model.h"

namespace seqfuse::data::synthetic {

struct KuaiRandUser {
  int active_degree;  // index of a level
  int64_t follows, fans, friends, register_days;

  // Depends only on seed and user.
  static KuaiRandUser draw(uint64_t seed, int64_t user);

  // Activity, follows, fans, friends and days since registration, each by its range.
  Context context() const;
  void append_row(int64_t user, uint64_t seed, std::string& out) const;
};

inline constexpr const char* kKuaiRandUserHeader =
    "user_id,user_active_degree,is_lowactive_period,is_live_streamer,is_video_author,follow_user_"
    "num,"
    "follow_user_num_range,fans_user_num,fans_user_num_range,friend_user_num,friend_user_num_range,"
    "register_days,register_days_range,onehot_feat0,onehot_feat1,onehot_feat2,onehot_feat3,"
    "onehot_feat4,onehot_feat5,onehot_feat6,onehot_feat7,onehot_feat8,onehot_feat9,onehot_feat10,"
    "onehot_feat11,onehot_feat12,onehot_feat13,onehot_feat14,onehot_feat15,onehot_feat16,"
    "onehot_feat17";

}  // namespace seqfuse::data::synthetic
