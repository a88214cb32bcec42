/* DPDK's rte_sched, rte_meter and rte_acl on the work of Weir's rows, measured by `make bench-peers`.
 *
 * Each line of the input is `ROW PACKETS`; the answer is nanoseconds of processor time per packet, or a word why not. Rows:
 *   sched      4,096 pipes, 4 of their 16 queues in use: strict levels, as PRIQ below each class of `tree-4096x4/random`
 *   sched-16   the same with all 16 queues
 *   sched-red  as `sched`, with RED in each queue: `tree-4096x4-red/random`
 *   meter      RFC 2698's meter: `meter-trtcm`
 *   acl        1,000 rules: `classify-1000`
 * Batches are of 32 packets. 16,384 packets wait. What is random was drawn before. */
#include <rte_acl.h>
#include <rte_cycles.h>
#include <rte_eal.h>
#include <rte_mbuf.h>
#include <rte_meter.h>
#include <rte_sched.h>
#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { BATCH = 32, PIPES = 4096, WAITING = 4 * PIPES, DRAWS = 4 * WAITING, LEVELS = 4 };
/* So fast that no packet waits for a token: bytes a second. */
static const uint64_t RATE = 12500000000ull;

/* Weir's `Random`: xorshift128+ seeded by splitmix64. The same seed draws the same rules and keys. */
struct draw { uint64_t a, b; };

static uint64_t splitmix(uint64_t *x)
{
	uint64_t z = *x += 0x9e3779b97f4a7c15ull;
	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
	return z ^ (z >> 31);
}
static struct draw draw_of(uint64_t seed)
{
	struct draw d = { .a = splitmix(&seed) };
	d.b = splitmix(&seed) | 1;
	return d;
}
static uint64_t draw_u64(struct draw *d)
{
	uint64_t x = d->a, y = d->b, sum = x + y;
	d->a = y;
	x ^= x << 23;
	d->b = x ^ y ^ (x >> 18) ^ (y >> 5);
	return sum;
}
static uint32_t draw_u32(struct draw *d) { return draw_u64(d) >> 32; }
static uint64_t below(struct draw *d, uint64_t n) { return (unsigned __int128)draw_u64(d) * n >> 64; }

static double now_ns(void)
{
	struct timespec t;
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return t.tv_sec * 1e9 + t.tv_nsec;
}
static void fail(const char *what)
{
	printf("%s\n", what);
	exit(1);
}

/* --- rte_sched --- */

struct offer { uint16_t pipe; uint8_t tc, queue; uint16_t len; };
struct tree {
	struct rte_sched_port *port;
	struct rte_mempool *pool;
	struct offer *offers;
	uint32_t at;
};

static void write_offer(struct tree *t, struct rte_mbuf *m)
{
	const struct offer *o = &t->offers[t->at];
	t->at = (t->at + 1) % DRAWS;
	m->pkt_len = m->data_len = o->len;
	rte_sched_port_pkt_write(t->port, m, 0, o->pipe, o->tc, o->queue, RTE_COLOR_GREEN);
}
/* New packets for those that were dropped. RED may go on dropping for a while. */
static void refill(struct tree *t, unsigned missing)
{
	for (unsigned tries = 0; missing > 0 && tries < 1000000; tries++) {
		struct rte_mbuf *m = rte_pktmbuf_alloc(t->pool);
		if (!m)
			fail("no mbuf is left");
		write_offer(t, m);
		missing -= rte_sched_port_enqueue(t->port, &m, 1);
	}
}
static struct tree *tree_of(const char *name, unsigned queues, bool red)
{
	struct tree *t = calloc(1, sizeof(*t));
	static struct rte_sched_cman_params cman;
	cman.cman_mode = RTE_SCHED_CMAN_RED;
	struct rte_sched_pipe_params pipe = { .tb_rate = RATE, .tb_size = 1000000, .tc_period = 10, .tc_ov_weight = 1, .wrr_weights = { 1, 1, 1, 1 } };
	struct rte_sched_subport_profile_params profile = { .tb_rate = RATE, .tb_size = 1000000, .tc_period = 10 };
	struct rte_sched_subport_params subport = {
		.n_pipes_per_subport_enabled = PIPES, .pipe_profiles = &pipe, .n_pipe_profiles = 1,
		.n_max_pipe_profiles = 1, .cman_params = red ? &cman : NULL };
	for (int tc = 0; tc < RTE_SCHED_TRAFFIC_CLASSES_PER_PIPE; tc++) {
		pipe.tc_rate[tc] = profile.tc_rate[tc] = RATE;
		/* Weir's queues hold 50 packets, RED's thresholds are 5 and 15. */
		subport.qsize[tc] = 64;
		for (int colour = 0; colour < RTE_COLORS; colour++)
			cman.red_params[tc][colour] = (struct rte_red_params){ 5, 15, 10, 9 };
	}
	struct rte_sched_port_params port = {
		.name = name, .socket = 0, .rate = RATE, .mtu = 1522, .frame_overhead = 0, .n_subports_per_port = 1,
		.subport_profiles = &profile, .n_subport_profiles = 1, .n_max_subport_profiles = 1,
		.n_pipes_per_subport = PIPES };
	t->pool = rte_pktmbuf_pool_create(name, WAITING + 4 * BATCH, 0, 0, 128, 0);
	t->port = rte_sched_port_config(&port);
	if (!t->pool || !t->port || rte_sched_subport_config(t->port, 0, &subport, 0))
		fail("rte_sched cannot be configured");
	for (uint32_t p = 0; p < PIPES; p++)
		if (rte_sched_pipe_config(t->port, 0, p, 0))
			fail("a pipe cannot be configured");
	struct draw d = draw_of(7);
	t->offers = calloc(DRAWS, sizeof(*t->offers));
	for (int n = 0; n < DRAWS; n++) {
		static const uint16_t lens[] = { 64, 64, 64, 64, 64, 64, 64, 594, 594, 594, 594, 1518 };
		uint32_t leaf = below(&d, (uint64_t)PIPES * queues), level = leaf % queues;
		/* The last of four levels is the first queue of the best-effort class. */
		uint8_t tc = queues == LEVELS && level == LEVELS - 1 ? RTE_SCHED_TRAFFIC_CLASS_BE : level;
		if (tc > RTE_SCHED_TRAFFIC_CLASS_BE)
			tc = RTE_SCHED_TRAFFIC_CLASS_BE;
		uint8_t queue = level > RTE_SCHED_TRAFFIC_CLASS_BE ? level - RTE_SCHED_TRAFFIC_CLASS_BE : 0;
		t->offers[n] = (struct offer){ leaf / queues, tc, queue, lens[below(&d, 12)] };
	}
	refill(t, WAITING);
	return t;
}
static uint32_t run_tree(struct tree *t, uint32_t packets)
{
	struct rte_mbuf *batch[BATCH];
	uint32_t done = 0, idle = 0;
	while (done < packets && idle < 1000000) {
		int n = rte_sched_port_dequeue(t->port, batch, BATCH);
		for (int i = 0; i < n; i++)
			write_offer(t, batch[i]);
		int kept = rte_sched_port_enqueue(t->port, batch, n);
		if (kept < n)
			refill(t, n - kept);
		done += n;
		idle = n ? 0 : idle + 1;
	}
	return done;
}

/* --- rte_meter: 64 bytes at 100 Mbit/s, committed half of that, peak three quarters; now is read once a batch --- */

struct meter { struct rte_meter_trtcm state; struct rte_meter_trtcm_profile profile; uint64_t now, step; };

static struct meter *meter_of(void)
{
	struct meter *m = calloc(1, sizeof(*m));
	struct rte_meter_trtcm_params params = { .cir = 6250000, .pir = 9375000, .cbs = 8000, .pbs = 8000 };
	if (rte_meter_trtcm_profile_config(&m->profile, &params) || rte_meter_trtcm_config(&m->state, &m->profile))
		fail("rte_meter cannot be configured");
	m->now = rte_get_tsc_cycles();
	m->step = rte_get_tsc_hz() * 64 * BATCH / 12500000;
	return m;
}
static uint32_t run_meter(struct meter *m, uint32_t packets)
{
	uint32_t done = 0;
	for (; done + BATCH <= packets; done += BATCH) {
		m->now += m->step;
		for (int i = 0; i < BATCH; i++) {
			uint32_t len = 64;
			__asm__ volatile("" : "+r"(len));
			enum rte_color c = rte_meter_trtcm_color_blind_check(&m->state, &m->profile, m->now, len);
			__asm__ volatile("" : : "r"(c));
		}
	}
	return done;
}

/* --- rte_acl: the rules and keys of `classify-1000` --- */

enum { RULES = 1000, KEYS = 1024 };
struct key { uint8_t protocol, pad[3]; uint32_t src, dst; uint16_t src_port, dst_port; };
struct rule { uint32_t src, dst; int src_bits, dst_bits, src_port, dst_port, protocol; };
RTE_ACL_RULE_DEF(acl_rule, 5);
struct acl { struct rte_acl_ctx *ctx; struct key keys[KEYS]; const uint8_t *data[KEYS]; uint32_t at; };

static struct rule draw_rule(struct draw *d)
{
	static const int from[] = { 8, 16, 24, 32 }, to[] = { 16, 24, 32, 32 };
	uint32_t shape = below(d, 20);
	struct rule r = { .src_bits = from[shape % 4], .dst_bits = to[shape / 5], .src_port = -1, .dst_port = -1, .protocol = -1 };
	r.src = draw_u32(d) >> (32 - r.src_bits) << (32 - r.src_bits);
	r.dst = draw_u32(d) >> (32 - r.dst_bits) << (32 - r.dst_bits);
	if (shape % 3)
		r.dst_port = below(d, 1024);
	if (shape % 5 == 0)
		r.src_port = below(d, 65536);
	if (shape % 2 == 0)
		r.protocol = shape % 4 == 0 ? 6 : 17;
	return r;
}
static struct key draw_key(struct draw *d, const struct rule *rules, bool aimed)
{
	uint32_t src = draw_u32(d), dst = draw_u32(d);
	uint16_t src_port = draw_u32(d), dst_port = below(d, 1024);
	uint8_t protocol = below(d, 2) ? 17 : 6;
	const struct rule *r = &rules[below(d, RULES)];
	if (aimed) {
		uint32_t src_mask = ~0u << (32 - r->src_bits), dst_mask = ~0u << (32 - r->dst_bits);
		src = r->src | (src & ~src_mask);
		dst = r->dst | (dst & ~dst_mask);
		src_port = r->src_port < 0 ? src_port : r->src_port;
		dst_port = r->dst_port < 0 ? dst_port : r->dst_port;
		protocol = r->protocol < 0 ? protocol : r->protocol;
	}
	return (struct key){ protocol, { 0 }, htobe32(src), htobe32(dst), htobe16(src_port), htobe16(dst_port) };
}
static struct acl *acl_of(void)
{
	struct acl *a = calloc(1, sizeof(*a));
	struct rte_acl_param param = { .name = "rules", .socket_id = 0, .rule_size = RTE_ACL_RULE_SZ(5), .max_rule_num = RULES };
	struct rte_acl_config config = { .num_categories = 1, .num_fields = 5, .defs = {
		{ RTE_ACL_FIELD_TYPE_BITMASK, 1, 0, 0, offsetof(struct key, protocol) },
		{ RTE_ACL_FIELD_TYPE_MASK, 4, 1, 1, offsetof(struct key, src) },
		{ RTE_ACL_FIELD_TYPE_MASK, 4, 2, 2, offsetof(struct key, dst) },
		{ RTE_ACL_FIELD_TYPE_RANGE, 2, 3, 3, offsetof(struct key, src_port) },
		{ RTE_ACL_FIELD_TYPE_RANGE, 2, 4, 3, offsetof(struct key, dst_port) } } };
	struct rule rules[RULES];
	struct draw d = draw_of(7);
	a->ctx = rte_acl_create(&param);
	for (int n = 0; a->ctx && n < RULES; n++) {
		const struct rule *r = &rules[n];
		rules[n] = draw_rule(&d);
		struct acl_rule rule = { .data = { .category_mask = 1, .priority = RULES - n, .userdata = n + 1 } };
		rule.field[0] = (struct rte_acl_field){ { .u8 = RTE_MAX(r->protocol, 0) }, { .u8 = r->protocol < 0 ? 0 : 0xff } };
		rule.field[1] = (struct rte_acl_field){ { .u32 = r->src }, { .u32 = r->src_bits } };
		rule.field[2] = (struct rte_acl_field){ { .u32 = r->dst }, { .u32 = r->dst_bits } };
		rule.field[3] = (struct rte_acl_field){ { .u16 = RTE_MAX(r->src_port, 0) }, { .u16 = r->src_port < 0 ? 0xffff : r->src_port } };
		rule.field[4] = (struct rte_acl_field){ { .u16 = RTE_MAX(r->dst_port, 0) }, { .u16 = r->dst_port < 0 ? 0xffff : r->dst_port } };
		if (rte_acl_add_rules(a->ctx, (const struct rte_acl_rule *)&rule, 1))
			fail("a rule is refused");
	}
	if (!a->ctx || rte_acl_build(a->ctx, &config))
		fail("rte_acl cannot be built");
	for (int n = 0; n < KEYS; n++) {
		a->keys[n] = draw_key(&d, rules, n % 2 == 0);
		a->data[n] = (const uint8_t *)&a->keys[n];
	}
	/* Every second key is aimed at a rule: it must be found. */
	uint32_t found[KEYS];
	rte_acl_classify(a->ctx, a->data, found, KEYS, 1);
	for (int n = 0; n < KEYS; n += 2)
		if (!found[n])
			fail("a key that a rule was written for is not found");
	return a;
}
static uint32_t run_acl(struct acl *a, uint32_t packets)
{
	uint32_t found[BATCH], done = 0;
	for (; done + BATCH <= packets; done += BATCH) {
		rte_acl_classify(a->ctx, a->data + a->at, found, BATCH, 1);
		__asm__ volatile("" : : "r"(found) : "memory");
		a->at = (a->at + BATCH) % KEYS;
	}
	return done;
}

int main(int argc, char **argv)
{
	/* The processor that it was started on: the two programs take turns there. */
	char cpu[16];
	snprintf(cpu, sizeof(cpu), "%d", sched_getcpu());
	char *words[] = { argv[0], "-l", cpu, "--no-huge", "-m", "1024", "--no-pci", "--no-shconf", "--log-level=3", "--no-telemetry",
			  "--force-max-simd-bitwidth=512" };
	(void)argc;
	if (rte_eal_init(sizeof(words) / sizeof(*words), words) < 0)
		fail("DPDK does not start");
	setvbuf(stdout, NULL, _IOLBF, 0);
	struct tree *four = tree_of("four", LEVELS, false), *red = tree_of("red", LEVELS, true);
	struct tree *sixteen = tree_of("sixteen", RTE_SCHED_QUEUES_PER_PIPE, false);
	struct meter *meter = meter_of();
	struct acl *acl = acl_of();
	char row[32];
	uint32_t packets;
	while (scanf("%31s %" SCNu32, row, &packets) == 2) {
		double start = now_ns();
		uint32_t done = !strcmp(row, "sched")	  ? run_tree(four, packets)
				: !strcmp(row, "sched-16")  ? run_tree(sixteen, packets)
				: !strcmp(row, "sched-red") ? run_tree(red, packets)
				: !strcmp(row, "meter")	  ? run_meter(meter, packets)
				: !strcmp(row, "acl")	  ? run_acl(acl, packets)
							  : 0;
		double took = now_ns() - start;
		if (!done)
			fail("nothing was done");
		printf("%.2f\n", took / done);
	}
	return 0;
}
