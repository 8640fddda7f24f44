/* A region: what is said of its batches keeps to its bounds, and walks over the same bytes agree. */

#include "fuzz.h"

#include "regions_core.h"

/* Where the rules of a walk come from: bytes that the mutations reach. */
static int64_t number_at(const uint8_t *data, size_t size, size_t position) {
    return size < position + 8 ? (int64_t)position : fuzz_number(data + position, 8);
}

static int cut(const Region *region, int64_t start_offset, int64_t end_offset, int across) {
    CutRange range = {start_offset, end_offset, across};
    RegionCut cut;
    if (!quorate_cut_region(region, &range, &cut))
        return 0;
    CHECK(0 <= cut.start && cut.start <= cut.end && cut.end <= region->size_bytes);
    CHECK((cut.batch_count > 0) == (cut.start < cut.end));
    CHECK(cut.batch_count <= (cut.end - cut.start) / 61);
    Region inside = {region->data + cut.start, cut.end - cut.start};
    CHECK(quorate_check_region(&inside) <= 1);
    return 1;
}

static void follow(const Region *region, const StretchRules *rules) {
    Stretch stretch;
    quorate_follow(region, rules, &stretch);
    CHECK(stretch.batch_count >= 0 && stretch.size_bytes >= 61 * stretch.batch_count);
    if (!stretch.batch_count)
        return;
    CHECK(rules->position + stretch.size_bytes <= region->size_bytes && stretch.size_bytes <= rules->room_bytes);
    CHECK(stretch.last_offset >= rules->next_offset && stretch.largest_batch_bytes <= stretch.size_bytes);
}

int fuzz_one(const uint8_t *data, size_t size) {
    Region region = {data, (int64_t)size};
    int64_t first = number_at(data, size, 0), other = number_at(data, size, size / 2);
    int is_taken = cut(&region, 0, INT64_MAX, 1);
    cut(&region, first, other, other & 1);
    cut(&region, other, first, first & 1);
    for (int hostile = 0; hostile < 2; hostile++) {
        StretchRules rules = {
            .position = hostile ? other % ((int64_t)size + 2) : 0,
            .room_bytes = hostile ? first : INT64_MAX,
            .next_offset = hostile ? other : INT64_MIN,
            .end_offset = hostile ? first : INT64_MAX,
            .ends_before = hostile,
            .leader_epoch = size > 16 ? fuzz_number(data + 12, 4) : 0,
            .is_compressed = size > 22 ? (data[22] & 7) != 0 : 0,
        };
        follow(&region, &rules);
    }
    return is_taken;
}
