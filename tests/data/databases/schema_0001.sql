-- A small study as sglang-tuner wrote it with schema 0001 (commit b54d59e): simulated, kimi
-- profile, two launches, three trials with their measurements and requests, Optuna's own tables.
-- Shortened: server_info, and the folders of logs and interpreter.
BEGIN TRANSACTION;
CREATE TABLE alembic_version (
	version_num VARCHAR(32) NOT NULL, 
	CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num)
);
INSERT INTO "alembic_version" VALUES('v3.2.0.a');
CREATE TABLE studies (
	study_id INTEGER NOT NULL, 
	study_name VARCHAR(512) NOT NULL, 
	PRIMARY KEY (study_id)
);
INSERT INTO "studies" VALUES(1,'old');
CREATE TABLE study_directions (
	study_direction_id INTEGER NOT NULL, 
	direction VARCHAR(8) NOT NULL, 
	study_id INTEGER NOT NULL, 
	objective INTEGER NOT NULL, 
	PRIMARY KEY (study_direction_id), 
	UNIQUE (study_id, objective), 
	FOREIGN KEY(study_id) REFERENCES studies (study_id)
);
INSERT INTO "study_directions" VALUES(1,'MAXIMIZE',1,0);
CREATE TABLE study_system_attributes (
	study_system_attribute_id INTEGER NOT NULL, 
	study_id INTEGER, 
	"key" VARCHAR(512), 
	value_json TEXT, 
	PRIMARY KEY (study_system_attribute_id), 
	UNIQUE (study_id, "key"), 
	FOREIGN KEY(study_id) REFERENCES studies (study_id)
);
CREATE TABLE study_user_attributes (
	study_user_attribute_id INTEGER NOT NULL, 
	study_id INTEGER, 
	"key" VARCHAR(512), 
	value_json TEXT, 
	PRIMARY KEY (study_user_attribute_id), 
	UNIQUE (study_id, "key"), 
	FOREIGN KEY(study_id) REFERENCES studies (study_id)
);
INSERT INTO "study_user_attributes" VALUES(1,1,'tuner_study','"old"');
CREATE TABLE trial_heartbeats (
	trial_heartbeat_id INTEGER NOT NULL, 
	trial_id INTEGER NOT NULL, 
	heartbeat DATETIME NOT NULL, 
	PRIMARY KEY (trial_heartbeat_id), 
	UNIQUE (trial_id), 
	FOREIGN KEY(trial_id) REFERENCES trials (trial_id)
);
CREATE TABLE trial_intermediate_values (
	trial_intermediate_value_id INTEGER NOT NULL, 
	trial_id INTEGER NOT NULL, 
	step INTEGER NOT NULL, 
	intermediate_value FLOAT, 
	intermediate_value_type VARCHAR(7) NOT NULL, 
	PRIMARY KEY (trial_intermediate_value_id), 
	UNIQUE (trial_id, step), 
	FOREIGN KEY(trial_id) REFERENCES trials (trial_id)
);
CREATE TABLE trial_params (
	param_id INTEGER NOT NULL, 
	trial_id INTEGER, 
	param_name VARCHAR(512), 
	param_value FLOAT, 
	distribution_json TEXT, 
	PRIMARY KEY (param_id), 
	UNIQUE (trial_id, param_name), 
	FOREIGN KEY(trial_id) REFERENCES trials (trial_id)
);
INSERT INTO "trial_params" VALUES(1,1,'algorithm',0.0,'{"name": "CategoricalDistribution", "attributes": {"choices": ["none", "EAGLE3"]}}');
INSERT INTO "trial_params" VALUES(2,3,'algorithm',1.0,'{"name": "CategoricalDistribution", "attributes": {"choices": ["none", "EAGLE3"]}}');
INSERT INTO "trial_params" VALUES(3,3,'EAGLE3.num_steps',2.0,'{"name": "IntDistribution", "attributes": {"log": false, "step": 1, "low": 2, "high": 2}}');
INSERT INTO "trial_params" VALUES(4,3,'EAGLE3.topk',1.0,'{"name": "IntDistribution", "attributes": {"log": false, "step": 1, "low": 1, "high": 1}}');
CREATE TABLE trial_system_attributes (
	trial_system_attribute_id INTEGER NOT NULL, 
	trial_id INTEGER, 
	"key" VARCHAR(512), 
	value_json TEXT, 
	PRIMARY KEY (trial_system_attribute_id), 
	UNIQUE (trial_id, "key"), 
	FOREIGN KEY(trial_id) REFERENCES trials (trial_id)
);
CREATE TABLE trial_user_attributes (
	trial_user_attribute_id INTEGER NOT NULL, 
	trial_id INTEGER, 
	"key" VARCHAR(512), 
	value_json TEXT, 
	PRIMARY KEY (trial_user_attribute_id), 
	UNIQUE (trial_id, "key"), 
	FOREIGN KEY(trial_id) REFERENCES trials (trial_id)
);
INSERT INTO "trial_user_attributes" VALUES(1,1,'configuration','"no speculation"');
INSERT INTO "trial_user_attributes" VALUES(2,1,'purpose','"baseline"');
INSERT INTO "trial_user_attributes" VALUES(3,2,'configuration','"EAGLE3 steps 3"');
INSERT INTO "trial_user_attributes" VALUES(4,2,'purpose','"baseline"');
INSERT INTO "trial_user_attributes" VALUES(5,3,'configuration','"EAGLE3 steps 2"');
INSERT INTO "trial_user_attributes" VALUES(6,3,'purpose','"search"');
INSERT INTO "trial_user_attributes" VALUES(7,1,'output_tok_s','75.92427303416451');
INSERT INTO "trial_user_attributes" VALUES(8,1,'simulated','true');
INSERT INTO "trial_user_attributes" VALUES(9,1,'tuner_state','"complete"');
INSERT INTO "trial_user_attributes" VALUES(10,2,'output_tok_s','60.341522457470326');
INSERT INTO "trial_user_attributes" VALUES(11,2,'accept_length','1.7222222222222223');
INSERT INTO "trial_user_attributes" VALUES(12,2,'simulated','true');
INSERT INTO "trial_user_attributes" VALUES(13,2,'tuner_state','"complete"');
INSERT INTO "trial_user_attributes" VALUES(14,3,'output_tok_s','59.9942026856918');
INSERT INTO "trial_user_attributes" VALUES(15,3,'accept_length','1.575');
INSERT INTO "trial_user_attributes" VALUES(16,3,'simulated','true');
INSERT INTO "trial_user_attributes" VALUES(17,3,'tuner_state','"complete"');
CREATE TABLE trial_values (
	trial_value_id INTEGER NOT NULL, 
	trial_id INTEGER NOT NULL, 
	objective INTEGER NOT NULL, 
	value FLOAT, 
	value_type VARCHAR(7) NOT NULL, 
	PRIMARY KEY (trial_value_id), 
	UNIQUE (trial_id, objective), 
	FOREIGN KEY(trial_id) REFERENCES trials (trial_id)
);
INSERT INTO "trial_values" VALUES(1,1,0,1.0,'FINITE');
INSERT INTO "trial_values" VALUES(2,2,0,7.97332809656925212138e-01,'FINITE');
INSERT INTO "trial_values" VALUES(3,3,0,7.74635907580084603907e-01,'FINITE');
CREATE TABLE trials (
	trial_id INTEGER NOT NULL, 
	number INTEGER, 
	study_id INTEGER, 
	state VARCHAR(8) NOT NULL, 
	datetime_start DATETIME, 
	datetime_complete DATETIME, 
	PRIMARY KEY (trial_id), 
	FOREIGN KEY(study_id) REFERENCES studies (study_id)
);
INSERT INTO "trials" VALUES(1,0,1,'COMPLETE','2026-11-30 00:05:51.004738','2026-11-30 00:05:57.510984');
INSERT INTO "trials" VALUES(2,1,1,'COMPLETE','2026-11-30 00:05:53.809071','2026-11-30 00:05:57.532341');
INSERT INTO "trials" VALUES(3,2,1,'COMPLETE','2026-11-30 00:05:53.815990','2026-11-30 00:05:57.551107');
CREATE TABLE tuner_alembic_version (
	version_num VARCHAR(32) NOT NULL, 
	CONSTRAINT tuner_alembic_version_pkc PRIMARY KEY (version_num)
);
INSERT INTO "tuner_alembic_version" VALUES('0001');
CREATE TABLE tuner_launch_trials (
	launch_id INTEGER NOT NULL, 
	trial_id INTEGER NOT NULL, 
	position INTEGER NOT NULL, 
	CONSTRAINT pk_tuner_launch_trials PRIMARY KEY (launch_id, trial_id), 
	CONSTRAINT fk_tuner_launch_trials_launch_id_tuner_launches FOREIGN KEY(launch_id) REFERENCES tuner_launches (id) ON DELETE CASCADE, 
	CONSTRAINT fk_tuner_launch_trials_trial_id_tuner_trials FOREIGN KEY(trial_id) REFERENCES tuner_trials (id) ON DELETE CASCADE
);
INSERT INTO "tuner_launch_trials" VALUES(1,1,0);
INSERT INTO "tuner_launch_trials" VALUES(2,2,0);
INSERT INTO "tuner_launch_trials" VALUES(2,3,1);
CREATE TABLE tuner_launches (
	id INTEGER NOT NULL, 
	study_id INTEGER NOT NULL, 
	number INTEGER NOT NULL, 
	state TEXT NOT NULL, 
	configuration JSON NOT NULL, 
	settings JSON NOT NULL, 
	mark TEXT NOT NULL, 
	log TEXT NOT NULL, 
	command JSON NOT NULL, 
	environment JSON NOT NULL, 
	pid INTEGER, 
	pid_started DOUBLE, 
	port INTEGER, 
	host TEXT, 
	phases JSON NOT NULL, 
	ready_s DOUBLE, 
	seconds DOUBLE, 
	sglang_version TEXT, 
	created DOUBLE NOT NULL, 
	failure_kind TEXT, 
	failure_phase TEXT, 
	failure_fault TEXT, 
	failure_message TEXT, 
	CONSTRAINT pk_tuner_launches PRIMARY KEY (id), 
	CONSTRAINT fk_tuner_launches_study_id_tuner_studies FOREIGN KEY(study_id) REFERENCES tuner_studies (id) ON DELETE CASCADE, 
	CONSTRAINT uq_tuner_launches_mark UNIQUE (mark), 
	CONSTRAINT uq_tuner_launches_study_id_number UNIQUE (study_id, number)
);
INSERT INTO "tuner_launches" VALUES(1,1,0,'complete','{"speculation":{"algorithm":"none"},"draft_tp":null,"flags":{},"env":{}}','[]','a5a835d31ec647e1a2d38364b7e750a1','logs/old/launch-0000-a5a835d3.log','["python","-m","runners.simulated_server","--model-path","moonshotai/Kimi-K2.5","--tp-size","8","--trust-remote-code","--max-running-requests","64","--host","127.0.0.1","--port","27410"]','[["TUNER_SIM_LAUNCH_INDEX","0"],["TUNER_SIM_PROFILE","kimi"],["TUNER_SIM_SEED","0"],["TUNER_SIM_TIME_SCALE","20"],["TUNER_SWITCHABLE_STEPS",null]]',3413,1795997150.83,27410,'machine','[["arguments",6.254900960011582],["distributed",3.032055260009656],["weights",14.184361539992096],["kv_cache",2.0530389600025956],["cuda_graph",9.107846480001172],["warmup",3.839364839986956],["ready",2.7645074799875147]]',4.12360755199915729463e+01,5.50523658000165596595e+01,'0.5.23',1.79599715099820065496e+09,NULL,NULL,NULL,NULL);
INSERT INTO "tuner_launches" VALUES(2,1,1,'complete','{"speculation":{"algorithm":"EAGLE3","num_steps":3,"topk":1,"num_draft_tokens":4},"draft_tp":8,"flags":{},"env":{}}','[{"num_steps":3},{"num_steps":2}]','a341096b361347c28eeb9cf47077181a','logs/old/launch-0001-a341096b.log','["python","-m","runners.simulated_server","--model-path","moonshotai/Kimi-K2.5","--speculative-algorithm","EAGLE3","--speculative-draft-model-path","lightseekorg/kimi-k2.5-eagle3","--speculative-num-steps","3","--speculative-eagle-topk","1","--speculative-num-draft-tokens","4","--tp-size","8","--trust-remote-code","--max-running-requests","64","--host","127.0.0.1","--port","26560"]','[["TUNER_SIM_LAUNCH_INDEX","1"],["TUNER_SIM_PROFILE","kimi"],["TUNER_SIM_SEED","0"],["TUNER_SIM_TIME_SCALE","20"],["TUNER_SWITCHABLE_STEPS","2,3"]]',3420,1795997153.61,26560,'machine','[["arguments",6.131314000012935],["distributed",3.041675460008264],["weights",17.273788060010702],["kv_cache",2.070956559982733],["cuda_graph",15.675384280002618],["warmup",3.6362705799911055],["ready",3.9466373400136945]]',5.1776026280022051651e+01,7.29625288800161797553e+01,'0.5.23',1.79599715380009889603e+09,NULL,NULL,NULL,NULL);
CREATE TABLE tuner_measurements (
	id INTEGER NOT NULL, 
	trial_id INTEGER NOT NULL, 
	launch_id INTEGER NOT NULL, 
	purpose TEXT NOT NULL, 
	point JSON NOT NULL, 
	started_at DOUBLE NOT NULL, 
	window_s DOUBLE, 
	requests INTEGER NOT NULL, 
	failed_requests INTEGER NOT NULL, 
	output_tokens BIGINT NOT NULL, 
	output_tok_s DOUBLE, 
	accept_length DOUBLE, 
	ttft_p50_ms DOUBLE, 
	ttft_p95_ms DOUBLE, 
	tpot_p50_ms DOUBLE, 
	tpot_p95_ms DOUBLE, 
	e2e_p50_ms DOUBLE, 
	e2e_p95_ms DOUBLE, 
	prompt_tokens BIGINT NOT NULL, 
	cached_tokens BIGINT NOT NULL, 
	histogram JSON NOT NULL, 
	workload_fingerprint TEXT NOT NULL, 
	simulated BOOLEAN NOT NULL, 
	invalid JSON NOT NULL, 
	CONSTRAINT pk_tuner_measurements PRIMARY KEY (id), 
	CONSTRAINT fk_tuner_measurements_launch_id_tuner_launches FOREIGN KEY(launch_id) REFERENCES tuner_launches (id) ON DELETE CASCADE, 
	CONSTRAINT fk_tuner_measurements_trial_id_tuner_trials FOREIGN KEY(trial_id) REFERENCES tuner_trials (id) ON DELETE CASCADE
);
INSERT INTO "tuner_measurements" VALUES(1,1,1,'baseline','{"concurrency":1,"weight":1.0,"requests":null}',1.79599715332196187972e+09,8.42945180011156480759e-01,4,0,64,7.59242730341645142297e+01,NULL,3.79175699890765827149e+01,58.0424550043972,1.08143946672498714178e+01,1.14357836673055626166e+01,2.0238092998624779284e+02,2.21421271991857793182e+02,174,0,'[]','2c1695604de33b79e47b02e13f050437109cb1efc5e6ff27a10c935849fd6e5c',1,'[]');
INSERT INTO "tuner_measurements" VALUES(2,1,1,'baseline','{"concurrency":2,"weight":1.0,"requests":null}',1.79599715344818329811e+09,9.83645500018610619008e-01,8,0,126,1.28094928505865254917e+02,NULL,5.90847900093649514019e+01,7.03442519898089813068e+01,1.22410653336070627259e+01,1.38678441329830093309e+01,2.45761589994799578562e+02,2.56822913012001663446e+02,393,0,'[]','d9055f410f532245550783bf0d9559d20880ec02c22a8904cf48db615607a86a',1,'[]');
INSERT INTO "tuner_measurements" VALUES(3,2,2,'baseline','{"concurrency":1,"weight":1.0,"requests":null}',1.79599715667979741096e+09,1.06062951999774668365e+00,4,0,64,6.03415224574703259454e+01,1.7222222222222223209e+00,4.89461400138679891824e+01,8.73909560104948468506e+01,1.39004739988498240423e+01,1.44161802669259486719e+01,2.54232959996443241834e+02,3.01243819003502721898e+02,174,0,'[26,1,2,7]','2c1695604de33b79e47b02e13f050437109cb1efc5e6ff27a10c935849fd6e5c',1,'[]');
INSERT INTO "tuner_measurements" VALUES(4,2,2,'baseline','{"concurrency":2,"weight":1.0,"requests":null}',1.79599715684403872482e+09,1.23944750001101056113e+00,8,0,127,1.02465009610226971399e+02,1.73972602739726012188e+00,68.6795499859727,9.60943189893441740423e+01,1.57891240002451596069e+01,1.83501391999016085776e+01,3.05248839995329035446e+02,3.62239815985958557575e+02,393,0,'[53,2,2,16]','d9055f410f532245550783bf0d9559d20880ec02c22a8904cf48db615607a86a',1,'[]');
INSERT INTO "tuner_measurements" VALUES(5,3,2,'search','{"concurrency":1,"weight":1.0,"requests":null}',1.79599715706594061852e+09,1.0667697399912867695e+00,4,0,64,59.9942026856918,1.575,4.93036099942401051521e+01,8.09361669817008078098e+01,1.3767708666515925842e+01,1.47567144661782858605e+01,2.51700980006717145442e+02,2.99529256979440106078e+02,174,0,'[28,1,11]','2c1695604de33b79e47b02e13f050437109cb1efc5e6ff27a10c935849fd6e5c',1,'[]');
INSERT INTO "tuner_measurements" VALUES(6,3,2,'search','{"concurrency":2,"weight":1.0,"requests":null}',1.79599715723647308353e+09,1.24390389999462058767e+00,8,0,121,9.72743955546109901905e+01,1.575,5.49734800006262958049e+01,8.31352060104109114035e+01,1.76775406677431128348e+01,1.8849423733020859828e+01,3.18083630008914042264e+02,3.47580084997389349155e+02,393,0,'[56,2,22]','d9055f410f532245550783bf0d9559d20880ec02c22a8904cf48db615607a86a',1,'[]');
CREATE TABLE tuner_requests (
	id INTEGER NOT NULL, 
	measurement_id INTEGER NOT NULL, 
	position INTEGER NOT NULL, 
	prompt TEXT NOT NULL, 
	sent_s DOUBLE, 
	ttft_s DOUBLE, 
	e2e_s DOUBLE, 
	prompt_tokens INTEGER NOT NULL, 
	completion_tokens INTEGER NOT NULL, 
	cached_tokens INTEGER NOT NULL, 
	verify_calls INTEGER NOT NULL, 
	correct_drafts INTEGER NOT NULL, 
	histogram JSON NOT NULL, 
	finish_reason TEXT NOT NULL, 
	error TEXT, 
	CONSTRAINT pk_tuner_requests PRIMARY KEY (id), 
	CONSTRAINT fk_tuner_requests_measurement_id_tuner_measurements FOREIGN KEY(measurement_id) REFERENCES tuner_measurements (id) ON DELETE CASCADE
);
INSERT INTO "tuner_requests" VALUES(1,1,0,'chat/091',2.75318001513369381427e-03,0.0607210800080793,2.24410039991198573261e-01,51,16,0,0,0,'[]','length',NULL);
INSERT INTO "tuner_requests" VALUES(2,1,1,'code/068',2.31989580024674069136e-01,4.28635799835319630801e-02,2.00276939976902212947e-01,43,16,0,0,0,'[]','length',NULL);
INSERT INTO "tuner_requests" VALUES(3,1,2,'chat/102',4.36654559998714830726e-01,0.0329715599946212,1.93714440028998069465e-01,53,16,0,0,0,'[]','length',NULL);
INSERT INTO "tuner_requests" VALUES(4,1,3,'code/037',6.34611320019757840782e-01,0.0315632599813398,2.04484919995593372732e-01,27,16,0,0,0,'[]','length',NULL);
INSERT INTO "tuner_requests" VALUES(5,2,0,'chat/091',6.27526002062950283288e-03,0.0625886600028025,2.2581903998798225075e-01,51,16,0,0,0,'[]','length',NULL);
INSERT INTO "tuner_requests" VALUES(6,2,1,'code/068',1.2458700002753175795e-02,5.55809200159274041652e-02,2.31134759997075889259e-01,43,16,0,0,0,'[]','length',NULL);
INSERT INTO "tuner_requests" VALUES(7,2,2,'chat/102',2.34251239999139215797e-01,3.31862800157978199422e-02,2.40121120004914700984e-01,53,16,0,0,0,'[]','length',NULL);
INSERT INTO "tuner_requests" VALUES(8,2,3,'code/037',2.44658980009262450039e-01,6.96034599968697875738e-02,2.58744560014747548848e-01,27,16,0,0,0,'[]','length',NULL);
INSERT INTO "tuner_requests" VALUES(9,2,4,'chat/005',0.4757253400021,5.54396000006818212568e-02,2.51797939999960362911e-01,55,16,0,0,0,'[]','length',NULL);
INSERT INTO "tuner_requests" VALUES(10,2,5,'code/003',5.06868960001156665384e-01,6.46516400229302234947e-02,0.242689180013258,89,16,0,0,0,'[]','length',NULL);
INSERT INTO "tuner_requests" VALUES(11,2,6,'chat/088',7.28829040017444640398e-01,4.46534200091264210641e-02,2.53254140006902161985e-01,26,16,0,0,0,'[]','length',NULL);
INSERT INTO "tuner_requests" VALUES(12,2,7,'code/071',7.50549300028069410473e-01,7.07431399860070087015e-02,2.48833999976341146975e-01,49,16,0,0,0,'[]','length',NULL);
INSERT INTO "tuner_requests" VALUES(13,3,0,'chat/091',5.13576000230386853218e-03,0.0931629800106748,3.09306880008080042898e-01,51,16,0,10,5,'[8,0,1,1]','length',NULL);
INSERT INTO "tuner_requests" VALUES(14,3,1,'code/068',3.17109800016623921692e-01,5.4682820009475108236e-02,2.55553139977564569562e-01,43,16,0,9,8,'[6,0,1,2]','length',NULL);
INSERT INTO "tuner_requests" VALUES(15,3,2,'chat/102',5.77607220002391841262e-01,4.32094600182608701288e-02,2.23347020000801421701e-01,53,16,0,8,7,'[5,1,0,2]','length',NULL);
INSERT INTO "tuner_requests" VALUES(16,3,3,'code/037',8.05560000007972121238e-01,3.66526400102884508669e-02,2.52912780015321914106e-01,27,16,0,9,6,'[7,0,0,2]','length',NULL);
INSERT INTO "tuner_requests" VALUES(17,4,0,'chat/091',2.49132001044927164912e-03,7.20746799925109371542e-02,3.14116939989617094397e-01,51,16,0,10,5,'[8,0,1,1]','length',NULL);
INSERT INTO "tuner_requests" VALUES(18,4,1,'code/068',9.61270001425873488187e-03,6.52844199794344604015e-02,2.88533579987415578216e-01,43,16,0,9,8,'[6,0,1,2]','length',NULL);
INSERT INTO "tuner_requests" VALUES(19,4,2,'chat/102',3.00710160008748061954e-01,5.95866799994837492704e-02,0.296380740001041,53,16,0,8,7,'[5,1,0,2]','length',NULL);
INSERT INTO "tuner_requests" VALUES(20,4,3,'code/037',3.1803257999854395166e-01,9.96738599860691465437e-02,3.36553519991866778582e-01,27,16,0,9,6,'[7,0,0,2]','length',NULL);
INSERT INTO "tuner_requests" VALUES(21,4,4,'chat/005',6.04330700007267296314e-01,8.56637199831311590969e-02,3.7601645999529864639e-01,55,16,0,10,7,'[7,1,0,2]','length',NULL);
INSERT INTO "tuner_requests" VALUES(22,4,5,'code/003',6.56172560011327732354e-01,8.94465999954263679683e-02,3.36654619968612678349e-01,89,16,0,9,6,'[7,0,0,2]','length',NULL);
INSERT INTO "tuner_requests" VALUES(23,4,6,'chat/088',9.85353739997663069516e-01,5.34029600021312944591e-02,2.51774659991497173905e-01,26,16,0,9,9,'[6,0,0,3]','length',NULL);
INSERT INTO "tuner_requests" VALUES(24,4,7,'code/071',9.93866139979218132793e-01,4.72151000212761573493e-02,2.48606360000849235802e-01,49,16,0,9,6,'[7,0,0,2]','length',NULL);
INSERT INTO "tuner_requests" VALUES(25,5,0,'chat/091',2.37034000747371464967e-03,8.54301999788731336593e-02,3.07776739973633084446e-01,51,16,0,11,4,'[9,0,2]','length',NULL);
INSERT INTO "tuner_requests" VALUES(26,5,1,'code/068',3.12689739985216874629e-01,4.31372399907559156417e-02,2.29108000021369662135e-01,43,16,0,9,6,'[6,0,3]','length',NULL);
INSERT INTO "tuner_requests" VALUES(27,5,2,'chat/102',5.44267039986152667552e-01,3.49007200202322565019e-02,2.50608440001087728887e-01,53,16,0,10,7,'[6,1,3]','length',NULL);
INSERT INTO "tuner_requests" VALUES(28,5,3,'code/037',8.05266639981709886342e-01,5.54699799977242946624e-02,2.52793520012346561998e-01,27,16,0,10,6,'[7,0,3]','length',NULL);
INSERT INTO "tuner_requests" VALUES(29,6,0,'chat/091',7.78557998273754492402e-03,8.65083800090360455214e-02,3.52888779998465906828e-01,51,16,0,11,4,'[9,0,2]','length',NULL);
INSERT INTO "tuner_requests" VALUES(30,6,1,'code/068',1.83756199839990586042e-02,7.2792499995557591319e-02,2.62389000017719808965e-01,43,16,0,9,6,'[6,0,3]','length',NULL);
INSERT INTO "tuner_requests" VALUES(31,6,2,'chat/102',2.82909999987168703228e-01,5.45776400031172670423e-02,3.19277820017305202782e-01,53,16,0,10,7,'[6,1,3]','length',NULL);
INSERT INTO "tuner_requests" VALUES(32,6,3,'code/037',3.64482299992232583463e-01,5.53693199981353245675e-02,0.324454279980273,27,16,0,10,6,'[7,0,3]','length',NULL);
INSERT INTO "tuner_requests" VALUES(33,6,4,'chat/005',0.606675279996125,5.12633999824174679815e-02,3.16889440000522881746e-01,55,16,0,10,5,'[7,1,2]','length',NULL);
INSERT INTO "tuner_requests" VALUES(34,6,5,'code/003',6.90226240003539714962e-01,4.76262799929827451705e-02,0.33772107999539,89,16,0,11,6,'[8,0,3]','length',NULL);
INSERT INTO "tuner_requests" VALUES(35,6,6,'chat/088',9.25317199980781879276e-01,7.6870740012964233756e-02,3.14936060021864250302e-01,26,16,0,9,6,'[6,0,3]','length',NULL);
INSERT INTO "tuner_requests" VALUES(36,6,7,'code/071',1.02970883999660145491e+00,0.0489304000075208,2.77072299977589864283e-01,49,16,0,10,6,'[7,0,3]','length',NULL);
CREATE TABLE tuner_studies (
	id INTEGER NOT NULL, 
	name TEXT NOT NULL, 
	text TEXT NOT NULL, 
	digest TEXT NOT NULL, 
	space_digest TEXT NOT NULL, 
	runner TEXT NOT NULL, 
	simulated BOOLEAN NOT NULL, 
	seed BIGINT NOT NULL, 
	planner TEXT NOT NULL, 
	hot_switch BOOLEAN NOT NULL, 
	budget_launches INTEGER, 
	budget_hours DOUBLE, 
	options JSON NOT NULL, 
	created DOUBLE NOT NULL, 
	stopped TEXT, 
	stop_reason TEXT, 
	work_s DOUBLE NOT NULL, 
	sglang_version TEXT, 
	owner_pid INTEGER, 
	owner_started DOUBLE, 
	owner_host TEXT, 
	CONSTRAINT pk_tuner_studies PRIMARY KEY (id), 
	CONSTRAINT uq_tuner_studies_name UNIQUE (name)
);
INSERT INTO "tuner_studies" VALUES(1,'old','study: old
model: {path: moonshotai/Kimi-K2.5, draft: lightseekorg/kimi-k2.5-eagle3}
server:
  flags: {tp-size: 8, trust-remote-code: true, max-running-requests: 64}
space:
  speculation:
    - algorithm: none
    - {algorithm: EAGLE3, num_steps: [2], topk: [1]}
workload: {prompts: {chat: 0.5, code: 0.5}, output_tokens: 16, requests: 3,
           points: [{concurrency: 1}, {concurrency: 2}]}
budget: {launches: 3}
runner: simulated
simulated: {profile: kimi, time_scale: 20.0}
','755fe3c569fcc2596c3af0df779de2efd1b0df45d74f29a726453443f5f2aff7','8abc00fed0ab5ed9','simulated',1,0,'exhaustive',1,3,NULL,'{}',1795997150.665,'exhausted','every point of the space was judged',1.28198132480029016734e+02,'0.5.23',NULL,NULL,NULL);
CREATE TABLE tuner_trials (
	id INTEGER NOT NULL, 
	study_id INTEGER NOT NULL, 
	number INTEGER NOT NULL, 
	purpose TEXT NOT NULL, 
	state TEXT NOT NULL, 
	configuration JSON NOT NULL, 
	configuration_key TEXT NOT NULL, 
	resolved JSON, 
	server_info JSON, 
	time_scale DOUBLE, 
	judged_launch_id INTEGER, 
	created DOUBLE NOT NULL, 
	finished DOUBLE, 
	failure_kind TEXT, 
	failure_phase TEXT, 
	failure_fault TEXT, 
	failure_message TEXT, 
	CONSTRAINT pk_tuner_trials PRIMARY KEY (id), 
	CONSTRAINT fk_tuner_trials_judged_launch_id_tuner_launches FOREIGN KEY(judged_launch_id) REFERENCES tuner_launches (id) ON DELETE SET NULL, 
	CONSTRAINT fk_tuner_trials_study_id_tuner_studies FOREIGN KEY(study_id) REFERENCES tuner_studies (id) ON DELETE CASCADE, 
	CONSTRAINT uq_tuner_trials_study_id_number UNIQUE (study_id, number)
);
INSERT INTO "tuner_trials" VALUES(1,1,0,'baseline','complete','{"speculation":{"algorithm":"none"},"draft_tp":null,"flags":{},"env":{}}','5c1939c568ffda76','{"speculation":{"algorithm":"none"},"draft_tp":null,"flags":{},"env":{}}','{"model_path":"moonshotai/Kimi-K2.5","tp_size":8,"random_seed":1795997152,"port":27410,"speculative_algorithm":null,"speculative_num_steps":null,"status":"ready","startup_time":{"load_weight":0.7,"kv_cache_allocation":0.1,"scheduler_e2e":1.3600834729986673,"cuda_graph":{"prefill":0.0,"decode":0.4,"target_verify":0.0,"draft_prefill":0.0,"draft_decode":0.0,"draft_extend":0.0},"tokenizer_e2e":1.5909742989988445},"version":"0.5.23","internal_states":[{"speculative_num_steps":null,"last_gen_throughput":0.0}],"simulated":{"profile":"kimi","time_scale":20.0,"seed":0}}',20.0,1,1.79599715099820065496e+09,1.79599715350459098817e+09,NULL,NULL,NULL,NULL);
INSERT INTO "tuner_trials" VALUES(2,1,1,'baseline','complete','{"speculation":{"algorithm":"EAGLE3","num_steps":3,"topk":1,"num_draft_tokens":4},"draft_tp":8,"flags":{},"env":{}}','b1c145800468453a','{"speculation":{"algorithm":"EAGLE3","num_steps":3,"topk":1,"num_draft_tokens":4},"draft_tp":8,"flags":{},"env":{}}','{"model_path":"moonshotai/Kimi-K2.5","tp_size":8,"random_seed":1795997155,"port":26560,"speculative_algorithm":"EAGLE3","speculative_num_steps":3,"status":"ready","startup_time":{"load_weight":0.85,"kv_cache_allocation":0.1,"scheduler_e2e":1.814115787999981,"cuda_graph":{"prefill":0.0,"decode":0.0,"target_verify":0.55,"draft_prefill":0.0,"draft_decode":0.075,"draft_extend":0.075},"tokenizer_e2e":2.0363189630006673},"version":"0.5.23","internal_states":[{"speculative_num_steps":3,"last_gen_throughput":0.0}],"simulated":{"profile":"kimi","time_scale":20.0,"seed":0}}',20.0,2,1.79599715380009889603e+09,1.79599715691152930262e+09,NULL,NULL,NULL,NULL);
INSERT INTO "tuner_trials" VALUES(3,1,2,'search','complete','{"speculation":{"algorithm":"EAGLE3","num_steps":2,"topk":1,"num_draft_tokens":3},"draft_tp":8,"flags":{},"env":{}}','2ee3a0e2643cc2f5','{"speculation":{"algorithm":"EAGLE3","num_steps":2,"topk":1,"num_draft_tokens":3},"draft_tp":8,"flags":{},"env":{}}','{"model_path":"moonshotai/Kimi-K2.5","tp_size":8,"random_seed":1795997155,"port":26560,"speculative_algorithm":"EAGLE3","speculative_num_steps":2,"status":"ready","startup_time":{"load_weight":0.85,"kv_cache_allocation":0.1,"scheduler_e2e":1.814115787999981,"cuda_graph":{"prefill":0.0,"decode":0.0,"target_verify":0.55,"draft_prefill":0.0,"draft_decode":0.075,"draft_extend":0.075},"tokenizer_e2e":2.0363189630006673},"version":"0.5.23","internal_states":[{"speculative_num_steps":2,"last_gen_throughput":7104.095095614076,"avg_spec_accept_length":1.671875}],"simulated":{"profile":"kimi","time_scale":20.0,"seed":0}}',20.0,2,1.79599715380009889603e+09,1.79599715730930066101e+09,NULL,NULL,NULL,NULL);
CREATE TABLE version_info (
	version_info_id INTEGER NOT NULL, 
	schema_version INTEGER, 
	library_version VARCHAR(256), 
	PRIMARY KEY (version_info_id), 
	CHECK (version_info_id=1)
);
INSERT INTO "version_info" VALUES(1,12,'5.0.0');
CREATE INDEX ix_tuner_trials_configuration_key ON tuner_trials (configuration_key);
CREATE INDEX ix_tuner_launch_trials_trial_id ON tuner_launch_trials (trial_id);
CREATE INDEX ix_tuner_measurements_launch_id ON tuner_measurements (launch_id);
CREATE INDEX ix_tuner_measurements_trial_id_launch_id ON tuner_measurements (trial_id, launch_id);
CREATE INDEX ix_tuner_requests_measurement_id ON tuner_requests (measurement_id);
CREATE UNIQUE INDEX ix_studies_study_name ON studies (study_name);
CREATE INDEX ix_trials_study_id ON trials (study_id);
COMMIT;
