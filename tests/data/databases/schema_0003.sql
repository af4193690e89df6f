-- Two small studies as sglang-tuner wrote them with schema 0003 (commit beb111f): simulated, kimi
-- profile; 'old' is finished, the tuner of 'cut' was killed in a launch. Optuna's own tables.
-- Shortened: server_info, and the folders of logs, studies and interpreter; the machine's names are
-- changed.
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
INSERT INTO "studies" VALUES(2,'cut');
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
INSERT INTO "study_directions" VALUES(2,'MAXIMIZE',2,0);
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
INSERT INTO "study_user_attributes" VALUES(2,2,'tuner_study','"cut"');
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
INSERT INTO "trial_params" VALUES(5,4,'algorithm',0.0,'{"name": "CategoricalDistribution", "attributes": {"choices": ["none", "EAGLE3"]}}');
INSERT INTO "trial_params" VALUES(6,6,'algorithm',1.0,'{"name": "CategoricalDistribution", "attributes": {"choices": ["none", "EAGLE3"]}}');
INSERT INTO "trial_params" VALUES(7,6,'EAGLE3.num_steps',2.0,'{"name": "IntDistribution", "attributes": {"log": false, "step": 1, "low": 2, "high": 2}}');
INSERT INTO "trial_params" VALUES(8,6,'EAGLE3.topk',1.0,'{"name": "IntDistribution", "attributes": {"log": false, "step": 1, "low": 1, "high": 1}}');
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
INSERT INTO "trial_user_attributes" VALUES(7,1,'output_tok_s','20.15579967052264');
INSERT INTO "trial_user_attributes" VALUES(8,1,'simulated','true');
INSERT INTO "trial_user_attributes" VALUES(9,1,'tuner_state','"complete"');
INSERT INTO "trial_user_attributes" VALUES(10,2,'output_tok_s','40.25064326948717');
INSERT INTO "trial_user_attributes" VALUES(11,2,'accept_length','2.0');
INSERT INTO "trial_user_attributes" VALUES(12,2,'simulated','true');
INSERT INTO "trial_user_attributes" VALUES(13,2,'tuner_state','"complete"');
INSERT INTO "trial_user_attributes" VALUES(14,3,'output_tok_s','33.31216795979733');
INSERT INTO "trial_user_attributes" VALUES(15,3,'accept_length','1.6666666666666665');
INSERT INTO "trial_user_attributes" VALUES(16,3,'simulated','true');
INSERT INTO "trial_user_attributes" VALUES(17,3,'tuner_state','"complete"');
INSERT INTO "trial_user_attributes" VALUES(18,4,'configuration','"no speculation"');
INSERT INTO "trial_user_attributes" VALUES(19,4,'purpose','"baseline"');
INSERT INTO "trial_user_attributes" VALUES(20,5,'configuration','"EAGLE3 steps 3"');
INSERT INTO "trial_user_attributes" VALUES(21,5,'purpose','"baseline"');
INSERT INTO "trial_user_attributes" VALUES(22,6,'configuration','"EAGLE3 steps 2"');
INSERT INTO "trial_user_attributes" VALUES(23,6,'purpose','"search"');
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
INSERT INTO "trial_values" VALUES(1,1,0,6.35577172555439662282e-01,'FINITE');
INSERT INTO "trial_values" VALUES(2,2,0,1.0,'FINITE');
INSERT INTO "trial_values" VALUES(3,3,0,8.5701603292241190779e-01,'FINITE');
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
INSERT INTO "trials" VALUES(1,0,1,'COMPLETE','2026-11-30 10:36:31.160116','2026-11-30 10:37:02.988074');
INSERT INTO "trials" VALUES(2,1,1,'COMPLETE','2026-11-30 10:36:48.488698','2026-11-30 10:37:03.686468');
INSERT INTO "trials" VALUES(3,2,1,'COMPLETE','2026-11-30 10:36:48.674927','2026-11-30 10:37:04.183077');
INSERT INTO "trials" VALUES(4,0,2,'RUNNING','2026-11-30 10:37:34.878519',NULL);
INSERT INTO "trials" VALUES(5,1,2,'RUNNING','2026-11-30 10:37:45.532149',NULL);
INSERT INTO "trials" VALUES(6,2,2,'RUNNING','2026-11-30 10:37:45.698268',NULL);
CREATE TABLE tuner_alembic_version (
	version_num VARCHAR(32) NOT NULL, 
	CONSTRAINT tuner_alembic_version_pkc PRIMARY KEY (version_num)
);
INSERT INTO "tuner_alembic_version" VALUES('0003');
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
INSERT INTO "tuner_launch_trials" VALUES(3,4,0);
INSERT INTO "tuner_launch_trials" VALUES(4,5,0);
INSERT INTO "tuner_launch_trials" VALUES(4,6,1);
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
	failure_message TEXT, machine JSON, effective_environment JSON, log_digest TEXT, imported_from TEXT, 
	CONSTRAINT pk_tuner_launches PRIMARY KEY (id), 
	CONSTRAINT fk_tuner_launches_study_id_tuner_studies FOREIGN KEY(study_id) REFERENCES tuner_studies (id) ON DELETE CASCADE, 
	CONSTRAINT uq_tuner_launches_mark UNIQUE (mark), 
	CONSTRAINT uq_tuner_launches_study_id_number UNIQUE (study_id, number)
);
INSERT INTO "tuner_launches" VALUES(1,1,0,'complete','{"speculation":{"algorithm":"none"},"draft_tp":null,"flags":{},"env":{}}','[]','e403c73b0f594572acb557596845ff67','logs/old/launch-0000-e403c73b.log','["python", "-m", "runners.simulated_server", "--model-path", "moonshotai/Kimi-K2.5", "--tp-size", "8", "--trust-remote-code", "--max-running-requests", "64", "--host", "127.0.0.1", "--port", "30800"]','[["TUNER_SIM_LAUNCH_INDEX","0"],["TUNER_SIM_PROFILE","kimi"],["TUNER_SIM_SEED","0"],["TUNER_SIM_TIME_SCALE","20"],["TUNER_SWITCHABLE_STEPS",null]]',6208,1796034991.62,30800,'machine','[["arguments",48.34894100000383],["distributed",3.1847509401268326],["weights",14.327731199882692],["kv_cache",2.054735160054406],["cuda_graph",10.291642740048701],["warmup",12.957702619896736]]',91.1655036600132,3.12943919119890779246e+02,'0.5.23',1.79603499105242967607e+09,NULL,NULL,NULL,NULL,'{"host": "machine", "sglang": "0.5.23", "torch": null, "nccl": null, "python": "3.11.7", "driver": null, "gpus": ["NVIDIA RTX PRO 6000 Blackwell", "NVIDIA RTX PRO 6000 Blackwell", "NVIDIA RTX PRO 6000 Blackwell", "NVIDIA RTX PRO 6000 Blackwell", "NVIDIA RTX PRO 6000 Blackwell", "NVIDIA RTX PRO 6000 Blackwell", "NVIDIA RTX PRO 6000 Blackwell", "NVIDIA RTX PRO 6000 Blackwell"], "topology": null, "kernel": "6.1.0", "cpu": null, "caches": {}}','{}','a992125eb55174199d6e31d1494157824902e17d323dba252890e9f7ccd6a950',NULL);
INSERT INTO "tuner_launches" VALUES(2,1,1,'complete','{"speculation":{"algorithm":"EAGLE3","num_steps":3,"topk":1,"num_draft_tokens":4},"draft_tp":8,"flags":{},"env":{}}','[{"num_steps":3},{"num_steps":2}]','f9186539a77241a58b6c02b2c0ee0907','logs/old/launch-0001-f9186539.log','["python", "-m", "runners.simulated_server", "--model-path", "moonshotai/Kimi-K2.5", "--speculative-algorithm", "EAGLE3", "--speculative-draft-model-path", "lightseekorg/kimi-k2.5-eagle3", "--speculative-num-steps", "3", "--speculative-eagle-topk", "1", "--speculative-num-draft-tokens", "4", "--tp-size", "8", "--trust-remote-code", "--max-running-requests", "64", "--host", "127.0.0.1", "--port", "20260"]','[["TUNER_SIM_LAUNCH_INDEX","1"],["TUNER_SIM_PROFILE","kimi"],["TUNER_SIM_SEED","0"],["TUNER_SIM_TIME_SCALE","20"],["TUNER_SWITCHABLE_STEPS","2,3"]]',6213,1796035008.77,20260,'machine','[["arguments",45.69194759998936],["distributed",3.2833098999981303],["weights",17.585403220145963],["kv_cache",1.1261993198422715],["cuda_graph",16.789328120066784],["warmup",11.233033819880802],["ready",4.1458988600061275]]',9.985512083992944099e+01,2.76113695559790357954e+02,'0.5.23',1.79603500815530729294e+09,NULL,NULL,NULL,NULL,'{"host": "machine", "sglang": "0.5.23", "torch": null, "nccl": null, "python": "3.11.7", "driver": null, "gpus": ["NVIDIA RTX PRO 6000 Blackwell", "NVIDIA RTX PRO 6000 Blackwell", "NVIDIA RTX PRO 6000 Blackwell", "NVIDIA RTX PRO 6000 Blackwell", "NVIDIA RTX PRO 6000 Blackwell", "NVIDIA RTX PRO 6000 Blackwell", "NVIDIA RTX PRO 6000 Blackwell", "NVIDIA RTX PRO 6000 Blackwell"], "topology": null, "kernel": "6.1.0", "cpu": null, "caches": {}}','{}','123e34969a6257148c6f6c1a3e2882c84006f429d903217a3498ddb68035f9b6',NULL);
INSERT INTO "tuner_launches" VALUES(3,2,0,'complete','{"speculation":{"algorithm":"none"},"draft_tp":null,"flags":{},"env":{}}','[]','0a1a14af934b443793755281e63bee0c','logs/cut/launch-0000-0a1a14af.log','["python", "-m", "runners.simulated_server", "--model-path", "moonshotai/Kimi-K2.5", "--tp-size", "8", "--trust-remote-code", "--max-running-requests", "64", "--host", "127.0.0.1", "--port", "20400"]','[["TUNER_SIM_LAUNCH_INDEX","0"],["TUNER_SIM_PROFILE","kimi"],["TUNER_SIM_SEED","0"],["TUNER_SIM_TIME_SCALE","20"],["TUNER_SWITCHABLE_STEPS",null]]',6393,1796035055.41,20400,'machine','[["arguments",41.1901678799768],["distributed",2.5618558400310576],["weights",13.710050259978743],["kv_cache",2.075153780024266],["cuda_graph",8.337406479986385],["warmup",6.43740205996437],["ready",8.84696613997221]]',8.31590024399338290095e+01,1.96609616480069234962e+02,'0.5.23',1.79603505480559206015e+09,NULL,NULL,NULL,NULL,'{"host": "machine", "sglang": "0.5.23", "torch": null, "nccl": null, "python": "3.11.7", "driver": null, "gpus": ["NVIDIA RTX PRO 6000 Blackwell", "NVIDIA RTX PRO 6000 Blackwell", "NVIDIA RTX PRO 6000 Blackwell", "NVIDIA RTX PRO 6000 Blackwell", "NVIDIA RTX PRO 6000 Blackwell", "NVIDIA RTX PRO 6000 Blackwell", "NVIDIA RTX PRO 6000 Blackwell", "NVIDIA RTX PRO 6000 Blackwell"], "topology": null, "kernel": "6.1.0", "cpu": null, "caches": {}}','{}','bcf4b0c4220d7bbfbeeb6e1d284902f516e32d79dd313881ce6cf3500c6372fa',NULL);
INSERT INTO "tuner_launches" VALUES(4,2,1,'running','{"speculation":{"algorithm":"EAGLE3","num_steps":3,"topk":1,"num_draft_tokens":4},"draft_tp":8,"flags":{},"env":{}}','[{"num_steps":3},{"num_steps":2}]','ccb55337b1da462eb356b6c1c51098d9','logs/cut/launch-0001-ccb55337.log','["python", "-m", "runners.simulated_server", "--model-path", "moonshotai/Kimi-K2.5", "--speculative-algorithm", "EAGLE3", "--speculative-draft-model-path", "lightseekorg/kimi-k2.5-eagle3", "--speculative-num-steps", "3", "--speculative-eagle-topk", "1", "--speculative-num-draft-tokens", "4", "--tp-size", "8", "--trust-remote-code", "--max-running-requests", "64", "--host", "127.0.0.1", "--port", "26520"]','[["TUNER_SIM_LAUNCH_INDEX","1"],["TUNER_SIM_PROFILE","kimi"],["TUNER_SIM_SEED","0"],["TUNER_SIM_TIME_SCALE","20"],["TUNER_SWITCHABLE_STEPS","2,3"]]',6407,1796035065.92,26520,'machine','[["arguments",51.275416420103284],["distributed",3.2018561598670203],["weights",16.959367760136956],["kv_cache",2.1033541999349836],["cuda_graph",15.342206259956583],["warmup",7.356939599994803],["ready",5.9914528400986455]]',1.02230593240092275668e+02,NULL,'0.5.23',1.79603506537613916401e+09,NULL,NULL,NULL,NULL,'{"host": "machine", "sglang": "0.5.23", "torch": null, "nccl": null, "python": "3.11.7", "driver": null, "gpus": ["NVIDIA RTX PRO 6000 Blackwell", "NVIDIA RTX PRO 6000 Blackwell", "NVIDIA RTX PRO 6000 Blackwell", "NVIDIA RTX PRO 6000 Blackwell", "NVIDIA RTX PRO 6000 Blackwell", "NVIDIA RTX PRO 6000 Blackwell", "NVIDIA RTX PRO 6000 Blackwell", "NVIDIA RTX PRO 6000 Blackwell"], "topology": null, "kernel": "6.1.0", "cpu": null, "caches": {}}','{}',NULL,NULL);
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
	invalid JSON NOT NULL, warnings JSON, ttft_p99_ms DOUBLE, tpot_p99_ms DOUBLE, e2e_p99_ms DOUBLE, chunk_p50_ms DOUBLE, chunk_p95_ms DOUBLE, tokens_per_chunk DOUBLE, user_tok_s DOUBLE, accept_rate DOUBLE, request_s DOUBLE, offered_request_s DOUBLE, goodput_request_s DOUBLE, client_cpu_share DOUBLE, 
	CONSTRAINT pk_tuner_measurements PRIMARY KEY (id), 
	CONSTRAINT fk_tuner_measurements_launch_id_tuner_launches FOREIGN KEY(launch_id) REFERENCES tuner_launches (id) ON DELETE CASCADE, 
	CONSTRAINT fk_tuner_measurements_trial_id_tuner_trials FOREIGN KEY(trial_id) REFERENCES tuner_trials (id) ON DELETE CASCADE
);
INSERT INTO "tuner_measurements" VALUES(1,1,1,'baseline','{"concurrency":1,"weight":1.0,"requests":null,"request_rate":null,"trace":null}',1.79603499983664584164e+09,3.1752647399844136089e+00,4,0,64,2.01557996705226400986e+01,NULL,609.795580021455,1.07614668993483064696e+03,4.48569999813723030435e-01,1.36257474645390193042e+01,6.16524130018660798668e+02,1.28051165890792617574e+03,361,0,'[]','089a907c8202a91b237d57331ea38bf8f37bb3ad8f7a933fe9abb98fae8c4610',1,'[]','["few_requests: 4 answers; with fewer than 8 the tails are single requests and acceptance is mostly chance: raise the requests per window"]',1.11880714592844037727e+03,1.54853884244221280393e+01,1.35108372369577432433e+03,5.55899896426126360893e-02,9.64623963227482450477e-01,1.0,3.73592000637472165173e+03,NULL,1.25973747940766500619e+00,NULL,NULL,0.0728349913907137);
INSERT INTO "tuner_measurements" VALUES(2,1,1,'baseline','{"concurrency":2,"weight":1.0,"requests":null,"request_rate":null,"trace":null}',1.79603500392198228837e+09,2.56808153993915766477e+00,8,0,127,4.94532584051084498364e+01,NULL,2.02098209992982447147e+02,7.42793179961154237389e+02,2.31053579967313780238e+01,2.82602633378701284527e+01,5.92977600026642903685e+02,1.11515047494322061538e+03,588,0,'[]','0706f1bb57074b6b040882fe54785d7374620f6f78f414ccc4e66ceb978774b7',1,'["simulation_behind: the simulated server served its clients 2.09 of 0.98 simulated seconds too late: take a lower time scale or load, or leave it a core of its own"]','[]',8.4364396394812513338e+02,2.88827033393317833542e+01,1.22922878293320536613e+03,6.01999636273831129074e-02,1.63241091955569544331e+02,1.0,4.56802345659583792798e+01,NULL,2.72577014831306430053e+00,NULL,NULL,8.89297385804272422227e-02);
INSERT INTO "tuner_measurements" VALUES(3,1,1,'baseline','{"concurrency":2,"weight":1.0,"requests":null,"request_rate":null,"trace":null}',1.79603500608149337764e+09,1.8227449800178874284e+00,8,0,128,7.02237566983966559047e+01,NULL,3.21225639927433803677e+02,4.81754245993215590715e+02,8.76888800606442,1.07175220036879181861e+01,4.03165699972305446863e+02,5.82718809993821196258e+02,588,0,'[]','0706f1bb57074b6b040882fe54785d7374620f6f78f414ccc4e66ceb978774b7',1,'[]','[]',5.27767137216869855345e+02,1.0987075604498386383e+01,6.06496593993506394326e+02,5.04899799125269055366e-02,7.24337550345807272816e+01,1.0,2.60127138815062880885e+03,NULL,4.38898479364979099415e+00,NULL,NULL,9.21776012782357379027e-02);
INSERT INTO "tuner_measurements" VALUES(4,2,2,'baseline','{"concurrency":1,"weight":1.0,"requests":null,"request_rate":null,"trace":null}',1.79603501608504486078e+09,1.59003670007223263382e+00,4,0,64,4.02506432694871705288e+01,2.0,2.24186420018668286502e+02,4.21590698024374432861e+02,7.73758933064527809619e+00,1.10072347966100405616e+01,3.65145789983216673135e+02,5.29328885044378694146e+02,361,0,'[20,0,4,8]','089a907c8202a91b237d57331ea38bf8f37bb3ad8f7a933fe9abb98fae8c4610',1,'[]','["few_requests: 4 answers; with fewer than 8 the tails are single requests and acceptance is mostly chance: raise the requests per window"]',4.39896011623204685747e+02,1.14616741567927729052e+01,5.46566177047498058527e+02,1.22350029414519667625e-01,1.06548001960618421435e+02,1.875,1.21463440309908818901e+02,3.33333333333333314829e-01,2.515665204342948158e+00,NULL,NULL,8.96429749033422901272e-02);
INSERT INTO "tuner_measurements" VALUES(5,2,2,'baseline','{"concurrency":2,"weight":1.0,"requests":null,"request_rate":null,"trace":null}',1.79603501850667977334e+09,1.16023693990428,8,0,101,8.7051184569535024595e+01,1.86956521739130421266e+00,1.74889519985299557447e+02,2.27658787975087761878e+02,1.00129360022644195991e+01,1.9009949602574732097e+01,3.59233959898119792342e+02,4.58418380032526329159e+02,588,0,'[47,0,6,16]','0706f1bb57074b6b040882fe54785d7374620f6f78f414ccc4e66ceb978774b7',1,'[]','[]',2.38096429570578038692e+02,1.99353360574847719988e+01,4.7359548404929228127e+02,7.57600355427712202072e-02,1.49775745012448169291e+02,1.73913043478260864738e+00,8.90887620797492445472e+01,2.898550724637681264e-01,5.17135749918029841154e+00,NULL,NULL,1.04795008517863177943e-01);
INSERT INTO "tuner_measurements" VALUES(6,3,2,'search','{"concurrency":1,"weight":1.0,"requests":null,"request_rate":null,"trace":null}',1.79603502008197259904e+09,1.9212199001049157232e+00,4,0,64,3.33121679597973283657e+01,1.66666666666666651863e+00,4.11243169946828857064e+02,5.77228178030054550617e+02,4.19410003814846332748e-01,1.3585465999009711524e+01,429.221439990215,5.79998853070719633251e+02,361,0,'[24,0,12]','089a907c8202a91b237d57331ea38bf8f37bb3ad8f7a933fe9abb98fae8c4610',1,'[]','["few_requests: 4 answers; with fewer than 8 the tails are single requests and acceptance is mostly chance: raise the requests per window"]',590.888963638281,1.53968691981087175686e+01,5.92452618673269171267e+02,6.90500019118189811706e-02,3.70735004253219813108e+00,1.66666666666666674068e+00,6.5630241376256781222e+03,3.33333333333333314829e-01,2.0820104974873330228e+00,NULL,NULL,8.43032283764880846499e-02);
INSERT INTO "tuner_measurements" VALUES(7,3,2,'search','{"concurrency":2,"weight":1.0,"requests":null,"request_rate":null,"trace":null}',1.79603502188119673729e+09,1.30737105995649471879e+00,8,0,101,7.72542724047761737455e+01,1.57142857142857139685e+00,6.65227198624052107334e+01,1.5598779605352319777e+02,2.34857653364694378699e+01,2.71888399962335824966e+01,4.0116390009643509984e+02,5.34968519961694255471e+02,588,0,'[55,0,22]','0706f1bb57074b6b040882fe54785d7374620f6f78f414ccc4e66ceb978774b7',1,'[]','[]',1.56248615245567634701e+02,2.732173919677734375e+01,5.50336887949379161e+02,1.91699946299195289611e-01,1.66585600090911611914e+02,1.55844155844155851653e+00,4.70005413549050601309e+01,2.85714285714285698425e-01,4.58936271711541632356e+00,NULL,NULL,0.0975039787129885);
INSERT INTO "tuner_measurements" VALUES(8,4,3,'baseline','{"concurrency":1,"weight":1.0,"requests":null,"request_rate":null,"trace":null}',1.79603506199117159839e+09,2.3203111400653142482e+00,4,0,64,2.75825077485937804051e+01,NULL,2.78203740017488598823e+02,9.07421848925878407523e+02,1.10167419964758046542e+01,1.61441277305129915475e+01,4.86244480052846483886e+02,9.48100103960314299911e+02,361,0,'[]','089a907c8202a91b237d57331ea38bf8f37bb3ad8f7a933fe9abb98fae8c4610',1,'[]','["few_requests: 4 answers; with fewer than 8 the tails are single requests and acceptance is mostly chance: raise the requests per window"]',9.83913057707832308575e+02,1.65052938100416213274e+01,995.19053275435,0.0738899689167738,8.31116090557769808793e+01,1.0,1.01791920050076282674e+03,NULL,1.72390673428711127534e+00,NULL,NULL,6.41688079796960131329e-02);
INSERT INTO "tuner_measurements" VALUES(9,4,3,'baseline','{"concurrency":2,"weight":1.0,"requests":null,"request_rate":null,"trace":null}',1.79603506377026700974e+09,1.25633224000921472907e+00,8,0,112,8.91483927843629402314e+01,NULL,2.47445889981463551521e+02,4.02673479911754839122e+02,0.090883996260042,2.24021903292547612811e+01,4.02822659962112084031e+02,5.84376979932130780071e+02,588,0,'[]','0706f1bb57074b6b040882fe54785d7374620f6f78f414ccc4e66ceb978774b7',1,'[]','[]',4.03411543913534842431e+02,2.24382492631169334624e+01,5.85636451949540060013e+02,4.57800342701375484466e-02,1.42951591988093840157e+00,1.0,9.99524680831502519099e+03,NULL,5.57177454902268376457e+00,NULL,NULL,0.0905743213269502);
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
	error TEXT, proposed_drafts INTEGER DEFAULT '0' NOT NULL, chunks INTEGER DEFAULT '0' NOT NULL, late_s DOUBLE, 
	CONSTRAINT pk_tuner_requests PRIMARY KEY (id), 
	CONSTRAINT fk_tuner_requests_measurement_id_tuner_measurements FOREIGN KEY(measurement_id) REFERENCES tuner_measurements (id) ON DELETE CASCADE
);
INSERT INTO "tuner_requests" VALUES(1,1,0,'chat/147',3.76560055883601307868e-04,1.1294722599268425256e+00,1.3687267398927360773e+00,47,16,0,0,0,'[]','length',NULL,0,16,0.0);
INSERT INTO "tuner_requests" VALUES(2,1,1,'code/318',1.38437296001939103007e+00,7.73968459980096668004e-01,7.80626199994003400206e-01,41,16,0,0,0,'[]','length',NULL,0,16,0.0);
INSERT INTO "tuner_requests" VALUES(3,1,2,'chat/371',2.17548151995288208127e+00,4.45622700062813237309e-01,4.52422060043318197131e-01,169,16,0,0,0,'[]','length',NULL,0,16,0.0);
INSERT INTO "tuner_requests" VALUES(4,1,3,'code/237',2.80759030007175169885e+00,3.5586824000347405672e-01,3.5730751988012343645e-01,104,16,0,0,0,'[]','length',NULL,0,16,0.0);
INSERT INTO "tuner_requests" VALUES(5,2,0,'chat/147',-4.6019318004255183041e-01,9.05174399958923459053e-01,1.33679662001668475568e+00,47,16,0,0,0,'[]','length',NULL,0,16,0.0);
INSERT INTO "tuner_requests" VALUES(6,2,1,'code/318',3.29419999616220593452e-04,8.68856659944867715239e-01,1.25774835993070155382e+00,41,16,0,0,0,'[]','length',NULL,0,16,0.0);
INSERT INTO "tuner_requests" VALUES(7,2,2,'chat/371',8.92121939978096634149e-01,3.64602740010013803839e-01,6.87356819980777800083e-01,169,16,0,0,0,'[]','length',NULL,0,16,0.0);
INSERT INTO "tuner_requests" VALUES(8,2,3,'code/237',1.26414169993950054049e+00,1.44938820012612268328e-01,4.60267059970647096633e-01,104,16,0,0,0,'[]','length',NULL,0,16,0.0);
INSERT INTO "tuner_requests" VALUES(9,2,4,'chat/340',1.58242887991946190595e+00,1.40595539996866136789e-01,5.76170240092324092984e-01,56,16,0,0,0,'[]','length',NULL,0,16,0.0);
INSERT INTO "tuner_requests" VALUES(10,2,5,'code/146',1.7278489599993918091e+00,2.39378300029784440994e-01,6.09784959960961714386e-01,44,16,0,0,0,'[]','length',NULL,0,16,0.0);
INSERT INTO "tuner_requests" VALUES(11,2,6,'chat/198',2.17193178003071807324e+00,1.648181199561804533e-01,3.90271939977537840604e-01,41,16,0,0,0,'[]','length',NULL,0,16,0.0);
INSERT INTO "tuner_requests" VALUES(12,2,7,'code/013',2.34270275992457754909e+00,0.118353240104625,9.2810558009659871459e-01,86,16,0,0,0,'[]','length',NULL,0,16,0.0);
INSERT INTO "tuner_requests" VALUES(13,3,0,'chat/147',-1.53459319990361109375e-01,5.2195846001268364489e-01,7.70439500047359615564e-01,47,16,0,0,0,'[]','length',NULL,0,16,0.0);
INSERT INTO "tuner_requests" VALUES(14,3,1,'code/318',4.27140039391815662384e-04,5.39270360022783279418e-01,6.12441039993427693843e-01,41,16,0,0,0,'[]','length',NULL,0,16,0.0);
INSERT INTO "tuner_requests" VALUES(15,3,2,'chat/371',0.619582600047579,0.327701180067379,3.28560960042523220181e-01,169,16,0,0,0,'[]','length',NULL,0,16,0.0);
INSERT INTO "tuner_requests" VALUES(16,3,3,'code/237',6.24048260069685056805e-01,3.21225639927433803677e-01,4.29385239986004307866e-01,104,16,0,0,0,'[]','length',NULL,0,16,0.0);
INSERT INTO "tuner_requests" VALUES(17,3,4,'chat/340',0.950878240109887,3.47549979924224317073e-01,5.13366939994739368557e-01,56,16,0,0,0,'[]','length',NULL,0,16,0.0);
INSERT INTO "tuner_requests" VALUES(18,3,5,'code/146',1.06212598009733483195e+00,2.54195839952444657683e-01,4.03165699972305446863e-01,44,16,0,0,0,'[]','length',NULL,0,16,0.0);
INSERT INTO "tuner_requests" VALUES(19,3,6,'chat/198',1.47344450000673532485e+00,2.12962119985604658722e-01,3.44495440076570957899e-01,41,16,0,0,0,'[]','length',NULL,0,16,0.0);
INSERT INTO "tuner_requests" VALUES(20,3,7,'code/013',1.47523078005178831517e+00,2.09829399973386898636e-01,3.41756220004754140973e-01,86,16,0,0,0,'[]','length',NULL,0,16,0.0);
INSERT INTO "tuner_requests" VALUES(21,4,0,'chat/147',1.93180021597072482109e-04,4.44472340022912248969e-01,5.50875500048277899622e-01,47,16,0,7,8,'[4,0,1,2]','length',NULL,21,8,0.0);
INSERT INTO "tuner_requests" VALUES(22,4,1,'code/318',5.59205720055615529417e-01,1.56444780004676431417e-01,2.73269119934411719441e-01,41,16,0,8,8,'[5,0,1,2]','length',NULL,24,9,0.0);
INSERT INTO "tuner_requests" VALUES(23,4,2,'chat/371',0.842627439997159,2.91928060032660141587e-01,4.07231400022283196449e-01,169,16,0,8,8,'[5,0,1,2]','length',NULL,24,9,0.0);
INSERT INTO "tuner_requests" VALUES(24,4,3,'code/237',1.2563490000320598483e+00,1.49430919991573318839e-01,3.23060179944150149822e-01,104,16,0,9,8,'[6,0,1,2]','length',NULL,27,10,0.0);
INSERT INTO "tuner_requests" VALUES(25,5,0,'chat/147',-3.09602479974273592233e-01,2.93796079931780695915e-01,2.94886399933602660894e-01,47,16,0,7,8,'[4,0,1,2]','length',NULL,21,8,0.0);
INSERT INTO "tuner_requests" VALUES(26,5,1,'code/318',1.22700002975761890411e-04,2.40705839969450607895e-01,3.82532859948696568608e-01,41,16,0,8,8,'[5,0,1,2]','length',NULL,24,9,0.0);
INSERT INTO "tuner_requests" VALUES(27,5,2,'chat/371',-3.40024009346961975097e-03,2.51401060086209326982e-01,3.84984400006942451e-01,169,16,0,8,8,'[5,0,1,2]','length',NULL,24,9,0.0);
INSERT INTO "tuner_requests" VALUES(28,5,3,'code/237',3.90717059926828369498e-01,1.75470579997636377811e-01,3.25664620031602680683e-01,104,16,0,9,8,'[6,0,1,2]','length',NULL,27,10,0.0);
INSERT INTO "tuner_requests" VALUES(29,5,4,'chat/340',3.92520439927466213703e-01,1.74889519985299557447e-01,4.77389760053483769297e-01,56,16,0,10,8,'[7,0,1,2]','length',NULL,30,11,0.0);
INSERT INTO "tuner_requests" VALUES(30,5,5,'code/146',7.2561950000817887485e-01,1.43488699977751821279e-01,3.59233959898119792342e-01,44,16,0,9,6,'[7,0,0,2]','length',NULL,27,10,0.0);
INSERT INTO "tuner_requests" VALUES(31,5,6,'chat/198',8.77638899983139708638e-01,1.51980619993992149829e-01,0.276258579979185,41,16,0,9,6,'[7,0,0,2]','length',NULL,27,10,0.0);
INSERT INTO "tuner_requests" VALUES(32,5,7,'code/013',1.08677793992683291435e+00,4.39776400162372738122e-02,9.1645758002414368093e-01,86,16,0,9,8,'[6,0,1,2]','length',NULL,27,10,0.0);
INSERT INTO "tuner_requests" VALUES(33,6,0,'chat/147',1.76920002559199929237e-04,5.94304160040337592363e-01,5.95566060073906555771e-01,47,16,0,9,6,'[6,0,3]','length',NULL,27,10,0.0);
INSERT INTO "tuner_requests" VALUES(34,6,1,'code/318',6.97003060049610212445e-01,0.480464279971784,4.91784680052660405635e-01,41,16,0,9,6,'[6,0,3]','length',NULL,27,10,0.0);
INSERT INTO "tuner_requests" VALUES(35,6,2,'chat/371',1.20023192008375190198e+00,1.28912399959517642855e-01,3.66658199927769601345e-01,169,16,0,9,6,'[6,0,3]','length',NULL,27,10,0.0);
INSERT INTO "tuner_requests" VALUES(36,6,3,'code/237',1.57163816009415313601e+00,3.42022059921873733401e-01,3.43177939939778298139e-01,104,16,0,9,6,'[6,0,3]','length',NULL,27,10,0.0);
INSERT INTO "tuner_requests" VALUES(37,7,0,'chat/147',-8.23420120141236111521e-01,5.51496100088115781545e-01,5.52872480038786306977e-01,47,16,0,9,6,'[6,0,3]','length',NULL,27,10,0.0);
INSERT INTO "tuner_requests" VALUES(38,7,1,'code/318',3.92539950553327798843e-04,1.56313820043578743934e-01,5.54178979946300387382e-01,41,16,0,9,6,'[6,0,3]','length',NULL,27,10,0.0);
INSERT INTO "tuner_requests" VALUES(39,7,2,'chat/371',-2.63260339997941628098e-01,2.75750959990546107292e-01,5.9822683993843384087e-01,169,16,0,9,6,'[6,0,3]','length',NULL,27,10,0.0);
INSERT INTO "tuner_requests" VALUES(40,7,3,'code/237',3.37836739927297458052e-01,4.7802220069570466876e-02,4.58126680023269727826e-01,104,16,0,9,6,'[6,0,3]','length',NULL,27,10,0.0);
INSERT INTO "tuner_requests" VALUES(41,7,4,'chat/340',0.561046419898048,4.88774200493935495615e-02,4.0116390009643509984e-01,56,16,0,10,6,'[7,0,3]','length',NULL,30,11,0.0);
INSERT INTO "tuner_requests" VALUES(42,7,5,'code/146',0.80670179988374,0.154683700093301,3.97388980054529383778e-01,44,16,0,11,4,'[9,0,2]','length',NULL,33,12,0.0);
INSERT INTO "tuner_requests" VALUES(43,7,6,'chat/198',9.6665252000093460083e-01,6.65227198624052107334e-02,3.32656079990556463599e-01,41,16,0,11,4,'[9,0,2]','length',NULL,33,12,0.0);
INSERT INTO "tuner_requests" VALUES(44,7,7,'code/013',1.20857785994303412735e+00,5.13304800551850348711e-02,1.02244435998727567493e+00,86,16,0,9,6,'[6,0,3]','length',NULL,27,10,0.0);
INSERT INTO "tuner_requests" VALUES(45,8,0,'chat/147',1.90820137504488229751e-04,1.00303585990332067012e+00,1.00696313995285890996e+00,47,16,0,0,0,'[]','length',NULL,0,16,0.0);
INSERT INTO "tuner_requests" VALUES(46,8,1,'code/318',1.01229626001440919935e+00,3.65609120053704828023e-01,6.14542900002561509609e-01,41,16,0,0,0,'[]','length',NULL,0,16,0.0);
INSERT INTO "tuner_requests" VALUES(47,8,2,'chat/371',1.63809698002296499907e+00,1.54158040095353499054e-01,3.57946060103131458163e-01,169,16,0,0,0,'[]','length',NULL,0,16,0.0);
INSERT INTO "tuner_requests" VALUES(48,8,3,'code/237',1.99952974013285711407e+00,1.90798359981272369623e-01,3.17512599867768585681e-01,104,16,0,0,0,'[]','length',NULL,0,16,0.0);
INSERT INTO "tuner_requests" VALUES(49,9,0,'chat/147',-4.724503000034019351e-01,4.91359040024690330028e-01,4.96012520015938207507e-01,47,16,0,0,0,'[]','length',NULL,0,16,0.0);
INSERT INTO "tuner_requests" VALUES(50,9,1,'code/318',4.33579989476129412651e-04,2.40927319973707199096e-01,2.41707379900617524981e-01,41,16,0,0,0,'[]','length',NULL,0,16,0.0);
INSERT INTO "tuner_requests" VALUES(51,9,2,'chat/371',2.92087199341040104627e-02,2.10338120086817070841e-01,2.11725859990110620856e-01,169,16,0,0,0,'[]','length',NULL,0,16,0.0);
INSERT INTO "tuner_requests" VALUES(52,9,3,'code/237',2.49699499981943517923e-01,4.03596059913979843258e-01,4.04400800034636631608e-01,104,16,0,0,0,'[]','length',NULL,0,16,0.0);
INSERT INTO "tuner_requests" VALUES(53,9,4,'chat/340',2.51580920012202113866e-01,3.99905739905079826712e-01,4.01244519889587536454e-01,56,16,0,0,0,'[]','length',NULL,0,16,0.0);
INSERT INTO "tuner_requests" VALUES(54,9,5,'code/146',6.6189767996547743678e-01,2.51946780044818297028e-01,5.85951319953892379999e-01,44,16,0,0,0,'[]','length',NULL,0,16,0.0);
INSERT INTO "tuner_requests" VALUES(55,9,6,'chat/198',6.69260080030653625726e-01,2.42944999918108806014e-01,0.579653959866846,41,16,0,0,0,'[]','length',NULL,0,16,0.0);
INSERT INTO "tuner_requests" VALUES(56,9,7,'code/013',1.25126797996927052736e+00,1.18524431993137113749e+00,1.60537667994503863155e+00,86,16,0,0,0,'[]','length',NULL,0,16,0.0);
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
	owner_host TEXT, base_dir TEXT DEFAULT '' NOT NULL, forked_from TEXT, 
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
','755fe3c569fcc2596c3af0df779de2efd1b0df45d74f29a726453443f5f2aff7','8abc00fed0ab5ed9','simulated',1,0,'exhaustive',1,3,NULL,'{}',1.7960349854555361271e+09,'exhausted','every point of the space was judged',5.94649313140194863075e+02,'0.5.23',NULL,NULL,NULL,'/studies',NULL);
INSERT INTO "tuner_studies" VALUES(2,'cut','study: old
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
','755fe3c569fcc2596c3af0df779de2efd1b0df45d74f29a726453443f5f2aff7','8abc00fed0ab5ed9','simulated',1,0,'exhaustive',1,3,NULL,'{}',1.7960350512494094372e+09,NULL,NULL,1.97541498679900541903e+02,'0.5.23',6388,1796035044.69,'machine','/studies',NULL);
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
INSERT INTO "tuner_trials" VALUES(1,1,0,'baseline','complete','{"speculation":{"algorithm":"none"},"draft_tp":null,"flags":{},"env":{}}','5c1939c568ffda76','{"speculation":{"algorithm":"none"},"draft_tp":null,"flags":{},"env":{}}','{"model_path": "moonshotai/Kimi-K2.5", "tokenizer_path": "moonshotai/Kimi-K2.5", "tokenizer_mode": "auto", "tokenizer_backend": "huggingface", "tokenizer_worker_num": 1, "detokenizer_worker_num": 1}',20.0,1,1.79603499105242967607e+09,1.79603500643977737429e+09,NULL,NULL,NULL,NULL);
INSERT INTO "tuner_trials" VALUES(2,1,1,'baseline','complete','{"speculation":{"algorithm":"EAGLE3","num_steps":3,"topk":1,"num_draft_tokens":4},"draft_tp":8,"flags":{},"env":{}}','b1c145800468453a','{"speculation":{"algorithm":"EAGLE3","num_steps":3,"topk":1,"num_draft_tokens":4},"draft_tp":8,"flags":{},"env":{}}','{"model_path": "moonshotai/Kimi-K2.5", "tokenizer_path": "moonshotai/Kimi-K2.5", "tokenizer_mode": "auto", "tokenizer_backend": "huggingface", "tokenizer_worker_num": 1, "detokenizer_worker_num": 1}',20.0,2,1.79603500815530729294e+09,1.79603501891656231878e+09,NULL,NULL,NULL,NULL);
INSERT INTO "tuner_trials" VALUES(3,1,2,'search','complete','{"speculation":{"algorithm":"EAGLE3","num_steps":2,"topk":1,"num_draft_tokens":3},"draft_tp":8,"flags":{},"env":{}}','2ee3a0e2643cc2f5','{"speculation":{"algorithm":"EAGLE3","num_steps":2,"topk":1,"num_draft_tokens":3},"draft_tp":8,"flags":{},"env":{}}','{"model_path": "moonshotai/Kimi-K2.5", "tokenizer_path": "moonshotai/Kimi-K2.5", "tokenizer_mode": "auto", "tokenizer_backend": "huggingface", "tokenizer_worker_num": 1, "detokenizer_worker_num": 1}',20.0,2,1.79603500815530729294e+09,1.79603502228252053258e+09,NULL,NULL,NULL,NULL);
INSERT INTO "tuner_trials" VALUES(4,2,0,'baseline','complete','{"speculation":{"algorithm":"none"},"draft_tp":null,"flags":{},"env":{}}','5c1939c568ffda76','{"speculation":{"algorithm":"none"},"draft_tp":null,"flags":{},"env":{}}','{"model_path": "moonshotai/Kimi-K2.5", "tokenizer_path": "moonshotai/Kimi-K2.5", "tokenizer_mode": "auto", "tokenizer_backend": "huggingface", "tokenizer_worker_num": 1, "detokenizer_worker_num": 1}',20.0,3,1.79603505480559206015e+09,1.79603506441165208817e+09,NULL,NULL,NULL,NULL);
INSERT INTO "tuner_trials" VALUES(5,2,1,'baseline','running','{"speculation":{"algorithm":"EAGLE3","num_steps":3,"topk":1,"num_draft_tokens":4},"draft_tp":8,"flags":{},"env":{}}','b1c145800468453a',NULL,NULL,NULL,NULL,1.79603506537613916401e+09,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "tuner_trials" VALUES(6,2,2,'search','running','{"speculation":{"algorithm":"EAGLE3","num_steps":2,"topk":1,"num_draft_tokens":3},"draft_tp":8,"flags":{},"env":{}}','2ee3a0e2643cc2f5',NULL,NULL,NULL,NULL,1.79603506537613916401e+09,NULL,NULL,NULL,NULL,NULL);
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
